"""All readers of outside data, with generators of their input and checks of their results. TARGETS lists them for fuzz.py.

A target `make`s valid text from a Random. `check` compares the reader, for any bytes, with a second implementation or with
invariants. `trip` converts a value to text and back, or damages the text. A finding is an exception. UNREAD names functions that
look like readers but read no outside data, by the reason; test_readers.py compares both tables with the source.
"""

from readers import crontabs, engines, journals, proc, records, sockets, stores, urls, words  # noqa: F401
from readers.target import TARGETS  # noqa: F401

READ = {
    "record": """
        record.parse_record record.parse_names record.parse_tree record.parse_claim record.parse_range
        record.parse_since record.parse_closing record.parse_process record.parse_note record.clean_note
        record.parse_descriptor""",
    "quoted": "record.unquote",
    "gate": """
        gate.Gate.load gate.Gate.read_counter gate.Gate.read_skips gate.Gate.read_boot gate.read_line gate.is_number
        tickets.is_ticket tickets.get_number""",
    "stat": "identity.parse_stat",
    "status": """
        identity.read_inner_pid process.owners.may_signal start.read_parents_ignored process.systemd.notices
        kernel.read_umask""",
    "offsets": "identity.read_shift",
    "cgroup": "process.systemd.find_unit",
    "locks": "process.watch.find_lock_owner",
    "mounts": "commands.checks.find_file_system commands.checks.read_lines",
    "crontab": """
        commands.crontab.parse_crontab commands.crontab.parse_entry commands.crontab.read_all
        commands.crontab.read_source commands.units.parse_unit commands.units.read_settings
        commands.shell_line.split_line""",
    "environ": "launcher.read_environment",
    "value": """
        kinds.read_flag kinds.read_word kinds.read_duration kinds.read_count kinds.read_limit kinds.read_status kinds.read_signal
        kinds.read_pid kinds.read_note
        directories.split_name""",
    "words": """
        argv.parse commands.dispatch.parse_mixed argv.parse_option argv.parse_long argv.parse_letters argv.take_word argv.store argv.read_variables
        argv.read_variable argv.check_together""",
    "shown": """
        text.width.clean text.width.cut kernel.decode kernel.say text.describe.cut_command engines.engine.cut
        engines.etcd.unpack""",
    "journal": """
        history.reader.parse history.reader.parse_event history.reader.parse_optional history.reader.parse_int
        history.reader.parse_time history.reader.parse_totals history.usual.parse_run""",
    "journals": """
        history.reader.read_history history.reader.read_both history.reader.read_journal history.rotation.rotate
        history.usual.read_usual history.usual.read_tail""",
    "ran": "contention.period.parse_ran",
    "sockets": """
        contention.addresses.list_addresses contention.sockets.SocketQueue.find_texts contention.sockets.parse_claim
        contention.sockets.make_record""",
    "cmdline": "contention.sockets.read_command process.watch.describe_process",
    "report": "api.status_pipe.read_last",
    "url": """
        engines.targets.parse_url engines.network.split_host engines.targets.hide_secrets engines.targets.has_secret
        engines.targets.split_setting engines.network.unquote""",
    "toml": "engines.targets.read_configuration engines.targets.load_toml engines.targets.make_target",
    "entry_record": "engines.engine.parse_entry_record engines.engine.read_optional",
    "http": """
        engines.http.Answer.read engines.http.Answer.readline engines.http.Answer.read_status
        engines.http.Answer.read_headers engines.http.Answer.read_head_line engines.network.Timed.recv
        engines.http.Answer.decode engines.http.Answer.receive engines.http.parse_size""",
    "resp": """
        engines.resp.Connection.read_answer engines.resp.Connection.read_line engines.resp.Connection.read_bulk
        engines.resp.Connection.receive""",
    "etcd": """
        engines.etcd.Etcd.ask engines.etcd.read_error engines.etcd.Etcd.read_queue engines.etcd.Etcd.read_entries
        engines.etcd.Etcd.read_once engines.etcd.Etcd.read_outcomes engines.etcd.Etcd.renew engines.etcd.Etcd.wait_change
        engines.json.loads""",
    "zookeeper": """
        engines.zookeeper.session.Session.receive engines.zookeeper.session.Session.read_answer
        engines.zookeeper.session.Session.read engines.zookeeper.engine.ZooKeeper.read_queue
        engines.zookeeper.engine.ZooKeeper.read_entry_record engines.zookeeper.engine.ZooKeeper.read_outcomes
        engines.zookeeper.engine.ZooKeeper.read_log engines.zookeeper.engine.ZooKeeper.read_version""",
    "redis": """
        engines.redis.make_entries engines.redis.Redis.connect engines.redis.Redis.read_clock
        engines.redis.Redis.read_queue engines.redis.Redis.read_once engines.redis.Redis.read_outcomes
        engines.redis.find_name""",
    "document": """
        engines.s3.document.parse_document engines.s3.document.parse_stored""",
    "s3": """
        engines.s3.objects.Objects.read engines.s3.objects.Objects.parse engines.s3.engine.S3.read_queue
        engines.s3.engine.S3.read_once engines.s3.objects.parse_names engines.s3.store.Store.receive""",
    "dates": "engines.dates.parse_date engines.dates.parse_http_date engines.dates.read_number",
    "keys": "engines.s3.credentials.parse_keys",
    "profiles": "engines.s3.credentials.parse_ini engines.s3.credentials.read_ini",
}

UNREAD = {
    "only selects a reader": """
        engines.s3.credentials.Settings.read_profile
        api.arguments.read_options commands.schedule.read_starts commands.lookup.read_skips contention.evict.read_record
        contention.period.LocalStore.read_once contention.period.LocalStore.write_once
        contention.sockets.SocketTicket.read_record engines.acquire.EngineHold.read_once engines.engine.Engine.read_once
        engines.engine.Engine.read_outcomes
        engines.postgresql.engine.PostgreSQL.read_once
        engines.postgresql.engine.PostgreSQL.read_queue engines.queue.OrderedEngine.read_queue
        engines.zookeeper.engine.ZooKeeper.read_once engines.zookeeper.engine.ZooKeeper.read_once_with_version
        gate.Gate.read_unlocked identity.read_self identity.read_stat obstacles.read_claim process.systemd.signals_whole_unit
        process.tree.read_all tickets.Ticket.read_record""",
    "passes bytes on unread": """
        api.attempt.identify commands.hold.is_fork commands.hold.read_words contention.addresses.read_table journal.append
        kernel.read_file process.descriptor.DescriptorHolder.__init__""",
    "reads one word that only the kernel writes": """
        command.make_names commands.hold.find_process commands.list.run contention.deadlock.list_below
        contention.ofd.find_unnamed_owner kernel.read_boot_clock
        engines.s3.store.Store.read_clock identity.read_namespace identity.read_origin identity.read_uptime
        process.watch.count_runnable text.remedies.blame text.remedies.describe_false_root text.remedies.find_outside supervise.has_systemd_signalled_all tickets.read_boot_time""",
    "only searches for a word": """
        contention.deadlock.open_waiting contention.flocks.refuse_own_lock contention.flocks.refuse_to_lose_lock contention.ofd.has_locked
        supervise.has_lock""",
    "reads the code of its own installation": """
        generate.loader.Loader.get_code""",
    "splits text of the kernel at spaces or NUL bytes, after identity.parse_stat": """
        process.proc.Process.__init__ process.proc.Process.cmdline supervise.has_executed""",
    "reads a process name, a path or the first line of a script, which kernel.say cleans": """
        contention.flocks.describe_locker start.find_interpreter start.find_program directories.open_base text.remedies.explain
        text.describe.describe_state text.describe.find_directory""",
    "reads text that this process has just written": """
        api.holder.make_holder commands.history.read_time commands.place.call_as
        commands.metrics.run engines.s3.engine.S3.pack""",
    "reads columns of solo's own queries, cast by the server": """
        engines.postgresql.libpq.Connection.receive engines.postgresql.libpq.read_value
        engines.postgresql.link.decode engines.postgresql.engine.PostgreSQL.read_outcomes
        engines.postgresql.engine.PostgreSQL.read_rows""",
    "reads no outside data": """
        api.blocking.Deferred.receive commands.clean.clean_all commands.prune.clean commands.top.Screen.receive
        contention.protocols.Ticket.read_record engines.network.make_tls process.library.load_library
        process.prctl.load_prctl""",
}
