#include "agent/files-image.h"

#include "agent/image.h"

int files_memfd(struct zw_error *e)
{
	return program_memfd("zwinger-files", files_image, files_image_size, e);
}
