package sqleffect

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"edda/effects/spec"
	"edda/manifests"
)

// checkDSN looks at what is known of the database's address, and at what may go into it.
func checkDSN(c *spec.Checker, v *manifests.Value, driver string) {
	switch v.Kind {
	case manifests.Literal:
		text, _ := v.Scalar.(string)
		if checkPassword(c, v.Pos, text) {
			return
		}
		s, err := sourceOf(map[string]any{"dsn": text, "driver": driver}, false)
		if err == nil {
			_, err = s.database.connector(s, nil, nil)
		}
		if err != nil {
			c.Errorf(v.Pos, "%s", err)
		}
	case manifests.Expression:
		checkNames(c, v, "secret")
		checkPassword(c, v.Pos, v.Expr.Source)
	case manifests.Template:
		checkNames(c, v, "secret", "tenant")
		text := v.Filled(hole)
		if !strings.HasPrefix(text, hole) && driverOf(text) == "" {
			c.Errorf(v.Pos, "a dsn that is put together is written as a URL, postgres://, mysql:// or sqlite:, so that each part is escaped")
		}
		checkPassword(c, v.Pos, text)
	default:
		c.Errorf(v.Pos, "dsn is a text, as dsn: =secret.NAME")
	}
}

// hole stands for an expression in a template's text.
const hole = "\x00"

// checkNames refuses expressions that see anything but these names: whoever chooses
// the database chooses where secrets go.
func checkNames(c *spec.Checker, v *manifests.Value, names ...string) {
	spec.Variables(v, func(e *manifests.Expr, name string) {
		if !slices.Contains(names, name) {
			c.Errorf(e.Pos, "dsn may use only %s, not %s: who sends a command does not choose the database; "+
				"a template such as \"postgres://app:${secret.PW}@db/shop_${tenant}\" may use tenant, too", strings.Join(names, " and "), name)
		}
	})
}

// passwords find what stands where a password is.
var passwords = []*regexp.Regexp{
	regexp.MustCompile(`://[^:/@]*:(.*)@`),                             // of a URL
	regexp.MustCompile(`(?i)[?&](?:password|passwd)=([^&]*)`),          // in its query
	regexp.MustCompile(`(?i)(?:^|[\s"'])password\s*=\s*('[^']*'|\S+)`), // keywords and values
	regexp.MustCompile(`^"?[^:/@\s]*:([^@]*)@(?:tcp|unix|\w*\(|/)`),    // MySQL's own form
}

// checkPassword refuses a password that is written down, and reports whether there is one.
func checkPassword(c *spec.Checker, pos manifests.Pos, text string) bool {
	for _, p := range passwords {
		m := p.FindStringSubmatch(text)
		if m == nil || m[1] == "" || m[1] == "''" || strings.Contains(m[1], hole) || strings.Contains(m[1], "secret.") {
			continue
		}
		c.Errorf(pos, "a password is a secret: write dsn: =secret.NAME, or ${secret.NAME} in its place")
		return true
	}
	return false
}

// plain values need no escape anywhere.
var plain = regexp.MustCompile(`^[A-Za-z0-9_-]*$`)

// escape writes a value into a dsn's template, so that it cannot leave its
// place. What comes first is the base itself and stays as it is, and a host may
// bring its port.
func escape(before, value string) string {
	if before == "" || plain.MatchString(value) {
		return value
	}
	escaped := strings.ReplaceAll(url.QueryEscape(value), "+", "%20")
	if value == "." || value == ".." {
		return strings.ReplaceAll(value, ".", "%2E")
	}
	_, rest, isURL := strings.Cut(before, "://")
	if isURL && (rest == "" || strings.HasSuffix(rest, "@")) && !strings.ContainsAny(rest, "/?") {
		return strings.ReplaceAll(escaped, "%3A", ":")
	}
	return escaped
}
