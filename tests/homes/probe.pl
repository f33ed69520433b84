# `perl probe.pl FILE`: write what this process inherited to FILE, a line `KEY VALUE` per fact, and exit with status 7.
# Perl changes none of it at its start; Python ignores two signals, and a shell sets variables.
use strict;

sub read_file {
    open(my $file, '<', $_[0]) or return '';
    local $/;
    return <$file> // '';
}

my @facts;
my $status = read_file('/proc/self/status');
for my $key (qw(Umask Uid Gid Groups ShdPnd SigBlk SigIgn CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp
    Cpus_allowed Mems_allowed)) {
    push @facts, "$key $1" if $status =~ /^$key:[ \t]*(.*)$/m;
}
push @facts, map { s/ +/ /gr } map { "limit $_" } split /\n/, read_file('/proc/self/limits');
push @facts, map { 'variable ' . unpack('H*', $_) } split /\0/, read_file('/proc/self/environ');
for my $path (glob('/proc/self/fd/*'), '/proc/self/cwd', '/proc/self/root') {
    my $target = readlink $path;
    push @facts, "link $path $target" if defined $target;
}
my $above = getppid;
for my $path (glob('/proc/self/ns/*')) {    # a parent may make new ones for each command
    my $target = readlink($path =~ s/self/$above/r) // '';
    push @facts, "link $path " . ($target eq readlink $path ? 'as the parent' : $target);
}
push @facts, "value $_ " . read_file("/proc/self/$_") =~ s/\n/;/gr
    for qw(timerslack_ns oom_score_adj coredump_filter personality cgroup loginuid);
my ($parent, $group, $session, $terminal, $foreground) = (split ' ', read_file('/proc/self/stat') =~ s/.*\)//sr)[1 .. 5];
my ($grandparent) = (split ' ', read_file("/proc/$parent/stat") =~ s/.*\)//sr)[1];
push @facts, 'nice ' . getpriority(0, 0);
push @facts, "ids $$ $parent " . ($grandparent // 0) . " $group $session $terminal $foreground";
open(my $out, '>', "$ARGV[0].new") or die;
print $out map { "$_\n" } @facts;
close $out;
rename "$ARGV[0].new", $ARGV[0];
exit 7;
