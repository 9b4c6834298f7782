/* SPDX-License-Identifier: BSD-2-Clause */
/* The tree of files that stands for the devices, with the formats of the kernel's:
 *
 *	ROOT/class/infiniband/NAME	   -> ../../devices/pciD:0I/D:0I:00.0/infiniband/NAME
 *	ROOT/class/infiniband_verbs/uverbsN -> .../infiniband_verbs/uverbsN
 *	ROOT/devices/pciD:0I/D:0I:00.0/	   the PCI device of device number I
 *	ROOT/devices/pciD:00/.anyrdma/	   what processes of ours share: lock, use, stamp, holes
 *
 * ROOT is /sys where the tree is mounted; else a folder that stands for it (src/shim).
 * PCI domain D is one that firmware does not give. Each device has a bus of its own:
 * NCCL takes devices whose addresses differ in slot and function alone for one. */
#ifndef ANYRDMA_FILES_TREE_H
#define ANYRDMA_FILES_TREE_H

#include "files/model.h"

#define FILES_PCI "pcia4da:" /* how the names of our folders in ROOT/devices begin */
#define FILES_STATE "devices/" FILES_PCI "00/.anyrdma"

/* Makes or updates all of it; to be called with the tree's lock, if others may know it.
 * Devices that the tree has and that are not given are left. 0 or -errno. */
int files_tree_write(int root, const struct files_device *d, unsigned n);
/* What changes while a device is used: port and GIDs. */
int files_tree_update(int root, const struct files_device *d, unsigned n);
/* Says that the tree is complete and belongs to this stamp. */
int files_tree_stamp(int root, const char *stamp);

/* A descriptor of ROOT where there is a tree of this stamp in /sys; or -errno. */
int files_tree_open(const char *stamp);
/* A descriptor of the folder of a device's port; or -errno. */
int files_tree_port(int root, const char *name);
/* Waits for the tree's lock: a descriptor to be closed; or -errno. */
int files_tree_lock(int root);

#endif
