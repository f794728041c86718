package sqleffect

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"

	"maps"

	"edda/effects/dial"
)

// source is a database that a manifest names.
type source struct {
	driver   string // the manifest's word
	database database
	dsn      string
	tls      any
	readonly bool // only where it makes the connection another
}

// sourceOf reads driver, dsn and tls.
func sourceOf(config map[string]any, readonly bool) (source, error) {
	s := source{tls: config["tls"]}
	s.dsn, _ = config["dsn"].(string)
	s.driver, _ = config["driver"].(string)
	if s.dsn == "" {
		return s, errors.New("dsn is empty")
	}
	if byScheme := driverOf(s.dsn); s.driver == "" {
		s.driver = byScheme
	} else if byScheme != "" && byScheme != s.driver {
		return s, errors.New("driver and the dsn's scheme differ")
	}
	var known bool
	if s.database, known = databases()[s.driver]; !known {
		return s, fmt.Errorf("which database the dsn is for cannot be seen: let it begin with postgres://, mysql:// or sqlite:, or give driver: %s", driverWords())
	}
	s.readonly = readonly && s.driver == "sqlite" // a connection of its own, which cannot write
	return s, nil
}

func driverWords() string { return strings.Join(slices.Sorted(maps.Keys(databases())), ", ") }

// driverOf is the driver that a DSN's scheme says; empty when it says none.
func driverOf(dsn string) string {
	for scheme, driver := range map[string]string{"postgres://": "postgres", "postgresql://": "postgres", "mysql://": "mysql", "mariadb://": "mysql", "sqlite:": "sqlite", "file:": "sqlite"} {
		if strings.HasPrefix(dsn, scheme) {
			return driver
		}
	}
	return ""
}

// key tells sources apart. It holds secrets.
func (s source) key() string {
	return fmt.Sprintf("%s\x00%s\x00%s\x00%t", s.driver, s.dsn, dial.TLSKey(s.tls), s.readonly)
}

// tlsConfig is what the manifest says about TLS; nil when it says nothing.
func (s source) tlsConfig() (*tls.Config, error) {
	if s.tls == nil {
		return nil, nil
	}
	return dial.TLS(s.tls)
}
