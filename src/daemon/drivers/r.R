# The R interpreter of a context: runs cells of code that come over descriptor 4 (protocol.md) in one lasting global environment, and
# answers on descriptor 5. Interrupts are SIGINT: they are held back but while a cell runs.
# Runs inside the sandbox with the guest's rights, so nothing here is a wall.
local({
	receiver <- file("/dev/fd/4", "rb", raw = TRUE)
	sender <- file("/dev/fd/5", "wb", raw = TRUE)
	text_max <- 2^20
	plots <- file.path(tempdir(), "zwinger-plots")

	# ---- The channel. ----

	read_exactly <- function(n) {
		parts <- list()
		while (n > 0) {
			part <- readBin(receiver, "raw", n)
			if (length(part) == 0)
				quit("no", 0, FALSE)
			parts[[length(parts) + 1]] <- part
			n <- n - length(part)
		}
		do.call(c, parts)
	}

	receive <- function() {
		head <- ""
		while ((c <- rawToChar(read_exactly(1))) != "\n")
			head <- paste0(head, c)
		text <- rawToChar(read_exactly(as.integer(head)))
		Encoding(text) <- "UTF-8"
		text
	}

	send <- function(text) {
		flush(stdout())
		flush(stderr())
		body <- charToRaw(enc2utf8(text))
		writeBin(c(charToRaw(paste0(length(body), "\n")), body), sender)
		flush(sender)
	}

	quoted <- function(text) {
		text <- enc2utf8(text)
		text <- ifelse(validUTF8(text), text, iconv(text, "UTF-8", "UTF-8", "?"))
		text <- gsub("\\", "\\\\", text, fixed = TRUE)
		text <- gsub("\"", "\\\"", text, fixed = TRUE)
		for (code in c(1:31, 127))
			if (any(grepl(intToUtf8(code), text, fixed = TRUE)))
				text <- gsub(intToUtf8(code), sprintf("\\u%04x", code), text, fixed = TRUE)
		paste0("\"", text, "\"")
	}

	# A text of JSON is one of R: both have the escapes that come.
	unquoted <- function(text) eval(parse(text = text, keep.source = FALSE, encoding = "UTF-8")[[1]], baseenv())

	cut_text <- function(text) if (nchar(text, "bytes") > text_max) paste0(substr(text, 1, text_max), "...") else text

	base64 <- function(bytes) {
		alphabet <- charToRaw("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
		missing <- (3 - length(bytes) %% 3) %% 3
		b <- matrix(as.integer(c(bytes, raw(missing))), nrow = 3)
		quads <- rbind(b[1, ] %/% 4L, b[1, ] %% 4L * 16L + b[2, ] %/% 16L, b[2, ] %% 16L * 4L + b[3, ] %/% 64L, b[3, ] %% 64L)
		out <- alphabet[quads + 1L]
		if (missing > 0)
			out[length(out) - seq_len(missing) + 1] <- charToRaw("=")
		rawToChar(out)
	}

	# ---- Values to results. ----

	column <- function(x) {
		if (inherits(x, "POSIXt"))
			x <- format(x, "%Y-%m-%dT%H:%M:%S")
		if (is.factor(x) || inherits(x, "Date") || !(is.numeric(x) || is.logical(x)))
			return(ifelse(is.na(x), "null", quoted(as.character(x))))
		if (is.logical(x))
			return(ifelse(is.na(x), "null", tolower(as.character(x))))
		ifelse(is.finite(x), format(as.numeric(x), digits = 15, trim = TRUE, scientific = FALSE, drop0trailing = TRUE), "null")
	}

	# A data frame by its columns; one with columns that are none of plain values, or many cells, has its text alone.
	data_of <- function(x) {
		plain <- vapply(x, function(c) is.atomic(c) && is.null(dim(c)), NA)
		if (!all(plain) || length(x) == 0 || prod(dim(x)) > 20000 || anyDuplicated(names(x)))
			return("")
		columns <- vapply(x, function(c) paste0("[", paste(column(c), collapse = ","), "]"), "")
		paste0(",\"data\":{", paste0(quoted(names(x)), ":", columns, collapse = ","), "}")
	}

	shown <- function(value) {
		lines <- utils::capture.output(if (isS4(value)) methods::show(value) else print(value))
		cut_text(paste(lines, collapse = "\n"))
	}

	result <- function(id, members, main)
		send(paste0("{\"t\":\"result\",\"id\":", id, ",\"result\":{\"main\":", if (main) "true" else "false", members, "}}"))

	send_plots <- function(id) {
		if (plotting_device %in% grDevices::dev.list())
			grDevices::dev.off(plotting_device)
		plotting_device <<- -1L
		for (path in list.files(plots, full.names = TRUE)) {
			size <- file.size(path)
			if (size > 0 && size < 8 * 2^20)
				result(id, paste0(",\"png\":\"", base64(readBin(path, "raw", size)), "\""), FALSE)
			unlink(path)
		}
	}

	plotting_device <- -1L
	open_device <- function(...) {
		dir.create(plots, FALSE)
		grDevices::png(file.path(plots, "plot-%04d.png"), 1000, 700, res = 120, type = if (capabilities("cairo")) "cairo" else "Xlib")
		plotting_device <<- grDevices::dev.cur()
	}

	# ---- Cells. ----

	# Values before the last are printed, as at a terminal; that of the last is the result. The call that failed and those around it
	# are taken before they are left.
	run <- function(id, code) {
		where <- list()
		tryCatch(withCallingHandlers({
			expressions <- parse(text = code, keep.source = TRUE, encoding = "UTF-8")
			for (i in seq_along(expressions)) {
				value <- withVisible(allowInterrupts(cell_eval(expressions[i])))
				if (!value$visible)
					next
				if (i < length(expressions)) {
					allowInterrupts(if (isS4(value$value)) methods::show(value$value) else print(value$value))
					next
				}
				text <- allowInterrupts(shown(value$value))
				data <- if (is.data.frame(value$value)) tryCatch(data_of(value$value), error = function(e) "") else ""
				send_plots(id)
				if (nzchar(text))
					result(id, paste0(",\"text\":", quoted(text), data), TRUE)
			}
			"ok"
		}, error = function(e) where <<- sys.calls(), warning = told_warning), interrupt = function(e) {
			failed(id, "Interrupted", "the execution was interrupted", "Interrupted: the execution was interrupted")
			"interrupted"
		}, error = function(e) {
			value <- conditionMessage(e)
			name <- if (inherits(e, "simpleError")) "Error" else class(e)[1]
			failed(id, name, value, paste(c(told_call(conditionCall(e), value), told_calls(where)), collapse = "\n"))
			"error"
		})
	}

	failed <- function(id, name, value, traceback)
		send(paste0("{\"t\":\"error\",\"id\":", id, ",\"error\":{\"name\":", quoted(name), ",\"value\":", quoted(cut_text(value)), ",\"traceback\":",
			quoted(cut_text(traceback)), "}}"))

	one_line <- function(call) substr(paste(deparse(call, nlines = 1)[1]), 1, 200)

	told_call <- function(call, value) {
		ours <- is.null(call) || identical(call[[1]], quote(eval)) || identical(call[[1]], quote(parse))
		if (ours) paste0("Error: ", value) else paste0("Error in ", one_line(call), " : ", value)
	}

	cell_eval <- function(expression) eval(expression, globalenv())

	# Those of the cell: between the eval() above, which calls itself, and what signals.
	told_calls <- function(calls) {
		names <- vapply(calls, function(c) paste(deparse(c[[1]], nlines = 1)[1]), "")
		first <- match("cell_eval", names)
		if (is.na(first))
			return(NULL)
		last <- which(names %in% c(".handleSimpleError", "h", "stop", "signalCondition") & seq_along(names) > first)
		calls <- calls[seq_along(calls) > first + 2 & seq_along(calls) < min(last, length(calls) + 1)]
		if (length(calls) > 1) c("Calls:", paste0("  ", vapply(calls, one_line, ""))) else NULL
	}

	told_warning <- function(w) {
		call <- conditionCall(w)
		ours <- is.null(call) || identical(call[[1]], quote(eval))
		if (getOption("warn") > 1)
			return()
		if (getOption("warn") >= 0)
			cat(if (ours) "Warning message:\n" else paste0("Warning message:\nIn ", one_line(call), " : "), conditionMessage(w), "\n", sep = "", file = stderr())
		tryInvokeRestart("muffleWarning")
	}

	execute <- function(message) {
		id <- sub("^.*?\"id\":([0-9]+),.*$", "\\1", substr(message, 1, 100), perl = TRUE)
		mark <- "},\"code\":\""
		at <- regexpr(mark, message, fixed = TRUE)
		env <- substr(message, regexpr("\"env\":{", message, fixed = TRUE) + 7, at - 1)
		code <- unquoted(substr(message, at + nchar(mark) - 1, nchar(message) - 1))
		texts <- vapply(regmatches(env, gregexpr("\"(?:[^\"\\\\]|\\\\.)*+\"", env, perl = TRUE))[[1]], unquoted, "", USE.NAMES = FALSE)
		names <- texts[c(TRUE, FALSE)]
		earlier <- Sys.getenv(names, NA, names = FALSE)
		if (length(names) > 0)
			do.call(Sys.setenv, stats::setNames(as.list(texts[c(FALSE, TRUE)]), names))
		# One that came when nothing ran any more hits nothing.
		tryCatch(allowInterrupts(Sys.sleep(0)), interrupt = function(e) NULL)
		status <- run(id, code)
		tryCatch(send_plots(id), error = function(e) NULL)
		Sys.unsetenv(names[is.na(earlier)])
		if (!all(is.na(earlier)))
			do.call(Sys.setenv, stats::setNames(as.list(earlier[!is.na(earlier)]), names[!is.na(earlier)]))
		send(paste0("{\"t\":\"done\",\"id\":", id, ",\"status\":\"", status, "\",\"interrupted\":", if (status == "interrupted") "true" else "false", "}"))
	}

	suspendInterrupts({
		options(device = open_device, warn = 1, keep.source = TRUE, menu.graphics = FALSE)
		send(paste0("{\"t\":\"ready\",\"driver\":\"native\",\"interrupt\":\"signal\",\"version\":\"", R.version$major, ".", R.version$minor, "\"}"))
		repeat execute(receive())
	})
})
