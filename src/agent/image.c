#include "agent/image.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "base/fd.h"
#include "kernel/uapi.h"

int program_memfd(const char *name, const unsigned char *image, uint64_t size, struct zw_error *e)
{
	const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	cleanup_fd int fd = memfd_create(name, flags | MFD_EXEC);
	int r;

	/* Before 6.3 the flag is unknown and every memfd can be executed. */
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, flags);
	if (fd < 0)
		return zw_errno(e, errno, "cannot make a memory file for %s%s", name,
				errno == EACCES ? " (the sysctl vm.memfd_noexec=2 forbids executable ones)" : "");
	r = fd_write_all(fd, image, size);
	if (r < 0)
		return zw_errno(e, -r, "cannot write the memory file of %s", name);
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		return zw_errno(e, errno, "cannot seal the memory file of %s", name);
	return take_fd(&fd);
}

int agent_memfd(struct zw_error *e)
{
	return program_memfd("zwinger-agent", agent_image, agent_image_size, e);
}
