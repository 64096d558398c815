#!/bin/bash
# Packs the built programs, their data, the tests of a GPU and every library that a bare machine lacks into one file:
#
#     tests/gpu/pack.sh BUILD FILE.tar.xz          (make gpu-package)
#
# It unpacks (tar -xJf, or python3 -m tarfile -e) to a folder ranvier-gpu that may lie anywhere and belong to anybody: ranvier-gpu/ranvier and ranvier-gpu/mpirun run
# there, on any Linux for x86-64 with this machine's glibc or a newer one, and libstdc++ (tests/gpu/package.sh tries it in a
# chroot that has these, bash and Python, and nothing else). Of CUDA the driver, libcublasLt and, for --attention cudnn, cuDNN
# are the machine's own, from its toolkit or from PyTorch's wheel.
set -eu
build=$(realpath "$1") file=$(realpath -m "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folder=$work/ranvier-gpu tree=$work/ranvier-gpu/tree
mpi=$(dirname "$(dirname "$(realpath "$(command -v orterun)")")") # Open MPI's prefix, which it lets us move
architecture=$(gcc -print-multiarch)
mkdir -p "$tree/build/bin" "$tree/build/tests" "$folder/lib" "$folder/mpi/bin" "$folder/mpi/lib/$architecture" "$folder/mpi/share"

cp "$build"/bin/ranvier* "$tree/build/bin/"
for plugin in device_cuda.so net_nccl.so attention_cudnn.so; do
        [ ! -e "$build/bin/$plugin" ] || cp "$build/bin/$plugin" "$tree/build/bin/"
done
cp "$build/tests/gpu" "$build/tests/test_conformance" "$tree/build/tests/"
strip -g "$tree"/build/bin/* "$tree"/build/tests/*
for part in models sim plots calibrate runtime/plan tests; do # presets, platforms, figures, profiles, frameworks
        mkdir -p "$tree/$part"
        (cd "$part" && find . \( -name '*.json' -o -name '*.csv' -o -name '*.gp' -o -name '*.xml' -o -name '*.py' -o -name '*.sh' \) -print0 |
                tar --null -T - -cf -) | tar -C "$tree/$part" -xf -
done

# Open MPI and PMIx with their components, which they load from below their prefixes.
cp "$mpi/bin/orterun" "$mpi/bin/orted" "$folder/mpi/bin/"
cp -r "$mpi/share/openmpi" "$folder/mpi/share/"
mkdir -p "$folder/mpi/lib/$architecture/openmpi/lib" "$folder/mpi/lib/$architecture/pmix2/lib"
cp -r "$mpi/lib/$architecture/openmpi/lib/openmpi3" "$folder/mpi/lib/$architecture/openmpi/lib/"
cp -r "$mpi/lib/$architecture/pmix2/lib/pmix" "$folder/mpi/lib/$architecture/pmix2/lib/"
cp -r "$mpi/lib/$architecture/pmix2/share" "$folder/mpi/lib/$architecture/pmix2/"

# Libraries: of the programs, of Open MPI's, of the components. Not glibc's and the compiler's, which must fit the machine, nor CUDA's.
closure() {
        local one
        for one in "$@"; do ldd "$one" 2>/dev/null || true; done | awk '/=> \//{print $3}' | sort -u
}
closure "$build"/bin/ranvier* "$tree"/build/bin/*.so "$build/tests/gpu" "$build/tests/test_conformance" "$folder"/mpi/bin/* \
        "$folder/mpi/lib/$architecture"/openmpi/lib/openmpi3/*.so "$folder/mpi/lib/$architecture"/pmix2/lib/pmix/*.so |
        grep -vE '/(libc|libm|libdl|librt|libpthread|libutil|libresolv|ld-linux.*|libstdc\+\+|libgcc_s|libcu.*|libnv.*|libnccl.*)\.so' |
        while read -r library; do cp -L "$library" "$folder/lib/"; done

# What both commands set: everything lies where this file lies.
cat >"$folder/environment.sh" <<'ENVIRONMENT'
# Sourced by ranvier, mpirun and tests/gpu/visit.sh: finds this package's programs and libraries, and the machine's CUDA.
package=$(cd "${BASH_SOURCE[0]%/*}" && pwd)
find_library() { # the folder of a library: of a toolkit, or of a wheel that PyTorch's asks for
        local folder
        for folder in "${CUDA_HOME:-/usr/local/cuda}"/lib64 "${CUDA_HOME:-/usr/local/cuda}"/targets/x86_64-linux/lib /usr/lib/x86_64-linux-gnu \
                /usr/local/cuda-*/lib64 {/usr,/usr/local,/opt/conda,$HOME/.local}/lib/python3*/{site,dist}-packages/nvidia/*/lib \
                "$(python3 -c 'import sys; print(sys.prefix)' 2>/dev/null)"/lib/python3*/site-packages/nvidia/*/lib \
                ${VIRTUAL_ENV:+"$VIRTUAL_ENV"/lib/python3*/site-packages/nvidia/*/lib}; do
                if compgen -G "$folder/$1*" >/dev/null; then
                        echo "$folder"
                        return
                fi
        done
}
cuda=$(for library in libcublasLt.so. libcudnn.so.9 libcudart.so.@CUDA@; do find_library $library; done | uniq | paste -sd:)
export LD_LIBRARY_PATH="$package/lib${cuda:+:$cuda}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export OPAL_PREFIX="$package/mpi" OPAL_SYSCONFDIR="$package/mpi/share/openmpi" PMIX_PREFIX="$package/mpi/lib/@ARCHITECTURE@/pmix2"
# One machine: no daemons on others, messages through shared memory.
export OMPI_MCA_plm=isolated OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none \
        OMPI_MCA_mca_base_component_show_load_errors=0 PMIX_MCA_mca_base_component_show_load_errors=0 \
        PMIX_MCA_pcompress_base_silence_warning=1
if [ "$EUID" -eq 0 ]; then
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
export PATH="$package:$PATH"
ENVIRONMENT
cuda=$(strings "$tree/build/bin/attention_cudnn.so" 2>/dev/null | sed -n 's/^libcudart\.so\.\([0-9]*\)$/\1/p' | head -1)
sed -i "s/@ARCHITECTURE@/$architecture/; s/@CUDA@/$cuda/" "$folder/environment.sh"
for program in ranvier:tree/build/bin/ranvier mpirun:mpi/bin/orterun; do
        # shellcheck disable=SC2016 # of the package's shell
        printf '#!/bin/bash\n. "$(cd "${BASH_SOURCE[0]%%/*}" && pwd)/environment.sh"\nexec "$package/%s" "$@"\n' "${program#*:}" \
                >"$folder/${program%%:*}"
        chmod +x "$folder/${program%%:*}"
done
{
        echo "ranvier $(git describe --always --dirty 2>/dev/null || echo unknown), packed with glibc $(getconf GNU_LIBC_VERSION | cut -d' ' -f2)"
        echo "ranvier-gpu/ranvier --help; tests of a GPU: bash ranvier-gpu/tree/tests/gpu/visit.sh a"
} >"$folder/README"
mkdir -p "$(dirname "$file")"
tar -C "$work" --owner=0 --group=0 --sort=name -cf - ranvier-gpu | xz -T0 -6 >"$file.part"
mv "$file.part" "$file"
printf '%s: %.1f MiB\n' "$file" "$(echo "$(stat -c %s "$file") / 1048576" | bc -l)"
