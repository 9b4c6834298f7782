/* SPDX-License-Identifier: BSD-2-Clause */
/* The formats of the kernel's files: drivers/infiniband/core/sysfs.c, drivers/pci. */
#ifndef ANYRDMA_FILES_TEXT_H
#define ANYRDMA_FILES_TEXT_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

const char *text_state(enum ibv_port_state state);
const char *text_phys_state(uint8_t state);
/* "40 Gb/sec (4X QDR)", of the codes in ibv_port_attr; text: 64 bytes. */
const char *text_rate(char *text, uint8_t width, uint32_t speed);
const char *text_gid(char *text, const union ibv_gid *gid); /* 40 bytes */
void text_guid(char *text, uint64_t guid);		    /* network order; 20 bytes */

/* The processors that are online: as a mask ("00000000,0000000f") and as a list ("0-3"). */
void text_cpus(char *mask, size_t size, char *list, size_t list_size);
/* The mask of a list; for tests. */
void text_cpu_mask(const char *list, char *mask, size_t size);

#endif
