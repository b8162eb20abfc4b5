/* `zwinger keys`: add, list, revoke, with or without a running daemon. The exit status. */
#pragma once

int keys_command(int argc, char **argv);
