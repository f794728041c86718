package httpeffect

import (
	"errors"
	"net/url"
	"strings"
	"unicode"
)

// maxDecoded is how often the path is decoded in search of a dot segment: by the server and by as
// many decoding proxies as are ever in a row.
const maxDecoded = 4

// errLeaves shows no value, because payloads are not for logs.
var errLeaves = errors.New("url: a segment of its path is . or .., or holds one behind an escaped slash, so that another path would be called; " +
	"give a value without it, or put raw(…) around the expression where that is meant")

// stays returns an error if a part of a URL's path leaves its place. Proxies decode a path before
// they resolve dot segments, and some servers decode it again. So %2E%2E, ..%2Fadmin and
// ..%252Fadmin act like ../admin. It accepts text that is no URL.
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
	return errLeaves // so many layers of escapes only hide something
}

// hasDotSegment reads a path as the most lenient server does: a backslash is a slash, a semicolon
// begins parameters, a NUL ends a name, and invisible characters are dropped.
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

// visible drops control characters, as browsers do, and blanks, as some file systems do.
func visible(r rune) rune {
	if unicode.IsControl(r) || unicode.IsSpace(r) {
		return -1
	}
	return r
}

// decoded removes one layer of escapes. Invalid escapes stay.
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
