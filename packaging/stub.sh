# Compile the stub: `sh packaging/stub.sh SCRIPT OUTPUT`. Fail without a C compiler (CC, else cc).
# Static: the loader of shared libraries takes longer than the stub.
script=$(printf '%s' "$1" | sed 's/[\\"]/\\&/g')
for static in -static ''; do
    ${CC:-cc} -Os -s $static "-DSCRIPT=\"$script\"" "${0%/*}/stub.c" -o "$2" 2>/dev/null && exit 0
done
exit 1
