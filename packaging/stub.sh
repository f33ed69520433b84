# Compile the stub: `sh packaging/stub.sh SCRIPT OUTPUT`. Fail without a C compiler (CC, else cc).
script=$(printf '%s' "$1" | sed 's/[\\"]/\\&/g')
for library in '-DBARE -static -nostdlib -ffreestanding -fno-stack-protector' -static ''; do
    # shellcheck disable=SC2086 # several options
    ${CC:-cc} -Os -s $library "-DSCRIPT=\"$script\"" "${0%/*}/stub.c" -o "$2" 2>/dev/null && exit 0
done
exit 1
