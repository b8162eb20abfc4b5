#include "daemon/e2b/e2b.h"

void e2b_envd_request(struct request *r, struct sandbox *s)
{
	(void) s;
	e2b_refuse(r, 501, "%.200s is not supported by this version", r->path);
}
