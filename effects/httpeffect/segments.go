package httpeffect

import (
	"errors"
	"net/url"
	"strings"
	"unicode"
)

// maxDecoded is how often the text of a path is decoded in search of a dot segment: by the
// other side, and by as many proxies before it as anybody has in a row and lets decode.
const maxDecoded = 4

// errLeaves says no value, since payloads are not for logs.
var errLeaves = errors.New("url: a segment of its path is . or .., or holds one behind an escaped slash, so that another path would be called; " +
	"give a value without it, or put raw(…) around the expression where that is meant")

// stays is an error where a part of a url's path leads out of its place. Proxies decode a
// path before they resolve dot segments, and some servers decode it once more, so %2E%2E,
// ..%2Fadmin and ..%252Fadmin are as good as ../admin. Text that is no url is for others to refuse.
func stays(text string) error {
	_, rest, _ := strings.Cut(text, "://")
	if end := strings.IndexAny(rest, "?#"); end >= 0 {
		rest = rest[:end]
	}
	begin := strings.IndexAny(rest, `/\`)
	if begin < 0 || !strings.ContainsAny(rest[begin:], ".%") {
		return nil
	}
	path := rest[begin:]
	for range maxDecoded {
		if hasDotSegment(path) {
			return errLeaves
		}
		before := path
		if path = decoded(path); path == before {
			return nil
		}
	}
	return errLeaves // nobody writes so many escapes of escapes but to hide something
}

// hasDotSegment looks at a path as the most lenient of its readers does: a backslash is a
// slash, what follows a semicolon are parameters, a NUL ends a name, and what nobody can
// see is not there.
func hasDotSegment(path string) bool {
	for segment := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == '\\' }) {
		name := segment
		if end := strings.IndexAny(segment, ";\x00"); end >= 0 {
			name = segment[:end]
		}
		if name = strings.Map(visible, name); name == "." || name == ".." {
			return true
		}
	}
	return false
}

// visible drops controls, as browsers do, and blanks, as some file systems do.
func visible(r rune) rune {
	if unicode.IsControl(r) || unicode.IsSpace(r) {
		return -1
	}
	return r
}

// decoded takes one layer of escapes off; what is none stays.
func decoded(path string) string {
	if !strings.Contains(path, "%") {
		return path
	}
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		if i+2 < len(path) && path[i] == '%' {
			if one, err := url.PathUnescape(path[i : i+3]); err == nil {
				b.WriteString(one)
				i += 2
				continue
			}
		}
		b.WriteByte(path[i])
	}
	return b.String()
}
