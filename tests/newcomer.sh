# Install, use, upgrade and purge the package in a clean Debian root, with a file of results per case in /lab. $1: the package,
# $2: a later version of it.
cd /lab
export DEBIAN_FRONTEND=noninteractive

find_installed() { find / -xdev \( -path /proc -o -path /sys -o -path /lab \) -prune -o -name '*solo*' -print | sort; }

{ apt-get -qq update && apt-get -qq install --no-install-recommends cron man-db; } >prepared 2>&1 || exit
touch ready
find_installed >files.before

# The two commands of README.
apt-get -qq install --no-install-recommends "./$1" >installed 2>&1
solo-run -n alone -- echo ran >alone 2>&1
apt-get -qq install ./solo-is-solo-run_*.deb python3-typer >>installed 2>&1
echo '* * * * * root solo -n by-cron -- touch /lab/ran-by-cron' >/etc/cron.d/job
echo '* * * * * www-data solo -n by-www -- touch /tmp/ran-by-www' >>/etc/cron.d/job
cron -f &
cron=$!

stat -c '%n %U %a' /run/solo /var/lib/solo >places
solo -- date +now >date 2>&1
solo -n started -- sh -c 'tr "\0" " " </proc/$PPID/cmdline; ls -l /proc/$PPID/fd' >start
solo --help >help 2>&1; echo $? >>help
solo list --jsn >mistyped 2>&1; echo $? >>mistyped
python3 -c 'import solo; print(solo.Lock("job").acquire())' >lock 2>&1
mkdir /tmp/smoke && AUTOPKGTEST_TMP=/tmp/smoke sh -eux smoke >smoked 2>&1; echo $? >smoke.status
# Run the hint for a missing library as typed; answer yes to apt.
echo 'APT::Get::Assume-Yes "true";' >/etc/apt/apt.conf.d/yes
solo --via zookeeper://127.0.0.1:1 -n job true 2>hint; echo $? >>hint
sed -n 's/.*(install: \(.*\))$/\1/p' hint | sh >>prepared 2>&1
solo --via zookeeper://127.0.0.1:1 -n job true 2>>hint; echo $? >>hint
bash -c '. /usr/share/bash-completion/completions/solo && complete -p solo' >bash 2>&1
find_installed >files.installed
apt-get -qq -s install solo1-cli >other 2>&1

mkfifo go
solo -n held -- sh -c 'echo runs >held; read line <go' &
while ! [ -s held ]; do sleep 0.1; done
apt-get -qq install "./$2" >upgraded 2>&1; dpkg-query -W solo-run >>upgraded
apt-get -qq install --reinstall "./$2" >>upgraded 2>&1
solo -n held -- true 2>busy; echo $? >>busy
solo list >list

while ! [ -e ran-by-cron ] || ! [ -e /tmp/ran-by-www ]; do sleep 0.1; done
rm /etc/cron.d/job
kill $cron
solo wait by-cron
solo history --json by-cron >history
runuser -u www-data -- solo wait by-www
runuser -u www-data -- solo history by-www | awk 'NR > 1 { print $1, $NF == "" ? "" : $0 ~ / ok / ? "ok" : $0 }' >www-data

sh /var/lib/dpkg/info/solo-run.postrm purge; find /run/solo /var/lib/solo-users -mindepth 1 2>/dev/null | sort >purged.held
echo >go
wait
apt-get -qq purge solo-run >purged 2>&1
find_installed >files.after
touch done
