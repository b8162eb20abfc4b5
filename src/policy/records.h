/* The parts of the schema that need a function: short forms of records, completion of records, flags of their own kind. */
#pragma once

#include "policy/schema.h"

row_expand expand_mount;     /* "SRC[:DST]" */
row_expand expand_workspace; /* "DIR[:DST[:MODE]]" */
row_expand expand_rule;      /* "HOST[:PORT,...]", "ADDRESS", "@pip" */
row_expand expand_host;      /* the target of network.hosts */
row_expand expand_publish;   /* 8080, "9000:8080", "127.0.0.1:9000:8080" */
row_expand expand_env;       /* the value of env.set */

row_finish finish_mount, finish_rule, finish_secret;

row_flag flag_env, flag_user;
