#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Debian's Open MPI and MPICH on anyrdma0: a program of ours (mpi.c) that checks every byte. The MPIs' own
# shared memory and TCP are switched off, so that no other way is left.
. "$(dirname "$0")/places.sh"
need bash
command -v mpirun.openmpi mpirun.mpich > /dev/null || skip_all "neither Open MPI nor MPICH is installed"
two_hosts "$@"
together 1
amount="quick" seconds=90
[ -z "${FULL:-}" ] || amount="" seconds=300

# Root in a container, more ranks than processors.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_btl_openib_warn_no_device_params_found=0
export OMPI_MCA_orte_tmpdir_base=$logs

# What stands for ssh between the two hosts. A host needs a name of its own.
agent=$logs/agent
cat > "$agent" <<-END
	#!/bin/bash
	ns=$lab_name-a
	[ "\$1" = 10.77.0.1 ] || ns=$lab_name-b
	shift
	exec ip netns exec \$ns unshare --uts bash -c "hostname \$ns && \$*"
END
chmod +x "$agent"

# run_mpi NAME RANKS MPIRUN-WORDS PROGRAM: every rank under anyrdma run, as on hosts of a cluster.
run_mpi() {
	solo "$where $1, $2 ranks" $seconds \
		"ANYRDMA_TRANSPORT=$carrier $3 $BUILD/bin/anyrdma run $4 $amount" "^all is right"
}

# openmpi NAME RANKS WORDS
openmpi() {
	local hosts=""
	[ "$where" != "two hosts" ] ||
		hosts="-H 10.77.0.1:4,10.77.0.2:4 --map-by node --mca plm_rsh_agent $agent"
	run_mpi "Open MPI, $1" "$2" "mpirun.openmpi $hosts --oversubscribe -n $2 $3" "$logs/openmpi"
}

mpich() { # NAME RANKS SETTINGS
	local hosts=""
	[ "$where" != "two hosts" ] ||
		hosts="-launcher rsh -launcher-exec $agent -hosts 10.77.0.1,10.77.0.2"
	run_mpi "MPICH, $1" "$2" "MPIR_CVAR_NOLOCAL=1 $3 mpirun.mpich $hosts -n $2" "$logs/mpich"
}

# Debian's openib finds its peers by udcm alone, which wants InfiniBand.
cases_openib() {
	local words="--mca pml ob1 --mca btl openib,self --mca btl_openib_allow_ib 1"
	words+=" --mca osc pt2pt -x ANYRDMA_LINK=ib"
	if ! "$BUILD/bin/anyrdma" info 2> /dev/null | grep -q ANYRDMA_LINK; then
		skip "$where Open MPI, btl openib" "this device has no InfiniBand link layer"
		return
	fi
	openmpi "btl openib" 2 "$words"
	# One-sided operations of more ranks stop for ever, see doc/programs.md.
	[ -z "${FULL:-}" ] || amount=quick openmpi "btl openib, messages" 4 "$words"
}

# Over UCX, and over libfabric.
cases_openmpi() {
	local ucx="--mca pml ucx --mca osc ucx --mca pml_ucx_tls any --mca pml_ucx_devices any"
	local none="--mca btl ^openib,ofi,tcp,vader"
	local rc="-x UCX_TLS=rc_v,self" ud="-x UCX_TLS=ud_v,self"
	local ofi="--mca pml cm --mca mtl ofi --mca osc pt2pt"
	ofi+=" --mca mtl_ofi_provider_include verbs\\;ofi_rxm"
	openmpi "pml ucx over rc_verbs" 2 "$ucx $none $rc"
	openmpi "mtl ofi over verbs;ofi_rxm" 2 "$ofi $none"
	cases_openib
	[ -n "${FULL:-}" ] || return
	openmpi "pml ucx over ud_verbs" 2 "$ucx $none $ud"
	openmpi "pml ucx over rc_verbs" 4 "$ucx $none $rc"
	openmpi "pml ucx over ud_verbs" 3 "$ucx $none $ud"
	openmpi "mtl ofi over verbs;ofi_rxm" 4 "$ofi $none"
	openmpi "pml ucx over rc_verbs" 8 "$ucx $none $rc"
}

cases_mpich() {
	mpich "UCX over rc_verbs" 2 "UCX_TLS=rc_v,self"
	[ -n "${FULL:-}" ] || return
	mpich "UCX over ud_verbs" 2 "UCX_TLS=ud_v,self"
	mpich "UCX over rc_verbs" 4 "UCX_TLS=rc_v,self"
	mpich "UCX over ud_verbs" 3 "UCX_TLS=ud_v,self"
	mpich "UCX over rc_verbs" 8 "UCX_TLS=rc_v,self"
}

for m in openmpi mpich; do
	if ! command -v mpirun.$m > /dev/null; then
		skip "$m" "$m is not installed"
	elif ! compile "$logs/$m" mpicc.$m -w "$here/mpi.c"; then
		skip "$m" "mpi.c is not to be compiled here: $why"
	else
		everywhere cases_$m
	fi
done
finish
