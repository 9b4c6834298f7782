/* SPDX-License-Identifier: BSD-2-Clause */
#include "dev/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS_MAX = 9 };

/* They are names of folders in sysfs, and programs make lists and patterns of them. */
static const char *check(const char *item, size_t len)
{
	if (!len)
		return "a name is empty";
	if (len >= IBV_SYSFS_NAME_MAX)
		return "a name is longer than 63 characters";
	if (item[0] == '.' || item[0] == '-')
		return "a name begins with a dot or a minus sign";
	for (size_t i = 0; i < len; i++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
			    "0123456789_.-",
			    item[i]))
			return "a name has a character that is no letter, digit, '_', '.' or '-'";
	return NULL;
}

/* item, the i-th of those that it names. */
static const char *count_up(const char *item, size_t len, unsigned i, char *out)
{
	size_t digits = 0;
	unsigned long first = 0;
	int n;

	while (digits < len && digits < DIGITS_MAX && item[len - 1 - digits] >= '0' &&
	       item[len - 1 - digits] <= '9')
		digits++;
	if (digits)
		first = strtoul(item + len - digits, NULL, 10);
	n = snprintf(out, sizeof(device_name), "%.*s%0*lu", (int)(len - digits), item,
		     (int)digits, first + i);
	return n >= (int)sizeof(device_name) ? "a name is longer than 63 characters" : NULL;
}

static const char *fill(const char *text, unsigned n, device_name *names)
{
	const char *why = NULL;
	unsigned i = 0;
	size_t len;

	for (;; text += len + 1) {
		len = strcspn(text, ",");
		why = check(text, len);
		if (!why && i == n)
			why = "there are more names than devices";
		if (why || !text[len])
			break;
		memset(names[i], 0, sizeof(names[i]));
		memcpy(names[i++], text, len);
	}
	if (!why && i + 1 == n) {
		memset(names[i], 0, sizeof(names[i]));
		memcpy(names[i], text, len);
	} else {
		for (unsigned k = 0; !why && i + k < n; k++)
			why = count_up(text, len, k, names[i + k]);
	}
	for (i = 0; !why && i < n; i++)
		for (unsigned k = 0; k < i; k++)
			if (!strcmp(names[i], names[k]))
				why = "two devices would have one name";
	return why;
}

const char *names_make(const char *text, unsigned n, device_name *names)
{
	const char *why = text && *text ? fill(text, n, names) : "";

	if (why)
		fill("anyrdma", n, names);
	if (why && n == 1)
		strcpy(names[0], "anyrdma0");
	return why && *why ? why : NULL;
}
