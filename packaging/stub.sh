# Compile the stub: `sh packaging/stub.sh SCRIPT OUTPUT`, with CPPFLAGS, CFLAGS and LDFLAGS. Fail without a C compiler (CC, else cc).
script=$(printf '%s' "$1" | sed 's/[\\"]/\\&/g')
# Without a C library where this compiler can, else with the shared one. Ours come last: they are what the first way needs.
for library in '-DBARE -static -nostdlib -ffreestanding -fno-stack-protector -fno-lto -fno-pie -no-pie' ''; do
    # shellcheck disable=SC2086 # several options
    ${CC:-cc} ${CPPFLAGS-} ${CFLAGS--Os} ${LDFLAGS--s} $library "-DSCRIPT=\"$script\"" "${0%/*}/stub.c" -o "$2" 2>/dev/null && exit 0
done
exit 1
