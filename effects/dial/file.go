package dial

import (
	"fmt"
	"path/filepath"
	"strings"
)

// File reports whether a file or a unix socket of this machine may be used: what
// is listed, and all where this machine is allowed; else the error is ErrForbidden.
func (g *Guard) File(path string) error {
	if !filepath.IsAbs(path) || path != filepath.Clean(path) {
		return fmt.Errorf("%q is no plain path: %w", path, ErrForbidden)
	}
	for _, p := range g.paths {
		if p == path || strings.HasSuffix(p, "/") && strings.HasPrefix(path, p) {
			return nil
		}
	}
	if g.o.AllowLoopback && !g.o.ListedOnly {
		return nil
	}
	return forbidden(path)
}
