/* zwinger-files in a sandbox: started on first use, again when it has ended. */
#pragma once

struct files_client;
struct sandbox;

/* NULL: it cannot be started now. The sandbox runs. */
struct files_client *sandbox_files(struct sandbox *s);
