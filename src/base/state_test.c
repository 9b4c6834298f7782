/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/list.h"
#include "base/lock.h"
#include "base/state.h"
#include "tests/t.h"

static struct lock a_lock PROCESS_STATE = LOCK_INIT;
static struct list a_list PROCESS_STATE = LIST_INIT(a_list);
static int a_number PROCESS_STATE = 7, nothing PROCESS_STATE;
static int other = 7; /* not marked */

static void state_is_as_it_was_loaded(void)
{
	struct list node;

	lock_get(&a_lock);
	list_add_tail(&a_list, &node);
	a_number = nothing = other = 8;
	state_renew();
	CHECK(lock_try(&a_lock));
	lock_put(&a_lock);
	CHECK(list_empty(&a_list));
	CHECK_EQ(a_number, 7);
	CHECK_EQ(nothing, 0);
	CHECK_EQ(other, 8);
}

static void objects_become_old(void)
{
	uint32_t made = state_generation();

	CHECK(state_is_old(0)); /* memory that is zero */
	CHECK(!state_is_old(made));
	state_renew();
	CHECK(state_is_old(made));
	CHECK(!state_is_old(state_generation()));
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(state_is_as_it_was_loaded);
	T_RUN(objects_become_old);
	return t_done();
}
