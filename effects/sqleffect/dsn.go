package sqleffect

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"edda/expression"
	"edda/manifests"
)

// dsn looks at what is known of the database's address, and at what may go into it.
func (c *checker) dsn(v *manifests.Value) {
	switch v.Kind {
	case manifests.Literal:
		c.literalDSN(v)
	case manifests.Expression:
		c.only(v.Expr, "secret")
		c.password(v.Pos, v.Expr.Source)
	case manifests.Template:
		c.templateDSN(v)
	default:
		c.errorf(v.Pos, "dsn is a text, as dsn: =secret.NAME")
	}
}

func (c *checker) literalDSN(v *manifests.Value) {
	text, _ := v.Scalar.(string)
	if c.password(v.Pos, text) {
		return
	}
	s, err := sourceOf(map[string]any{"dsn": text, "driver": c.driver()}, false)
	if err == nil {
		_, err = s.database.connector(s, nil, nil)
	}
	if err != nil {
		c.errorf(v.Pos, "%s", err)
	}
}

// driver is the literal word; empty where there is none.
func (c *checker) driver() string {
	if v := c.m.Config.Field("driver"); v != nil {
		s, _ := v.Scalar.(string)
		return s
	}
	return ""
}

// hole stands for an expression in a template's text.
const hole = "\x00"

func (c *checker) templateDSN(v *manifests.Value) {
	var text strings.Builder
	for _, p := range v.Parts {
		text.WriteString(p.Text)
		if p.Expr != nil {
			c.only(p.Expr, "secret", "tenant")
			text.WriteString(hole)
		}
	}
	first := v.Parts[0]
	if first.Expr == nil && driverOf(first.Text) == "" {
		c.errorf(v.Pos, "a dsn that is put together is written as a URL, postgres://, mysql:// or sqlite:, so that each part is escaped")
	}
	c.password(v.Pos, text.String())
}

// only refuses expressions that see anything but these names: whoever chooses
// the database chooses where secrets go.
func (c *checker) only(e *manifests.Expr, names ...string) {
	p, errs := expression.Compile(e.Source, expression.Options{Names: []string{"payload", "id", "tenant", "secret"}})
	if len(errs) > 0 {
		return // said by the compiler of the effect
	}
	for _, ref := range p.Refs() {
		if !slices.Contains(names, ref[0]) {
			c.errorf(e.Pos, "dsn may use only %s, not %s: who sends a command does not choose the database; "+
				"a template such as \"postgres://app:${secret.PW}@db/shop_${tenant}\" may use tenant, too", strings.Join(names, " and "), ref[0])
		}
	}
}

// passwords find what stands where a password is.
var passwords = []*regexp.Regexp{
	regexp.MustCompile(`://[^:/@]*:(.*)@`),                             // of a URL
	regexp.MustCompile(`(?i)[?&](?:password|passwd)=([^&]*)`),          // in its query
	regexp.MustCompile(`(?i)(?:^|[\s"'])password\s*=\s*('[^']*'|\S+)`), // keywords and values
	regexp.MustCompile(`^"?[^:/@\s]*:([^@]*)@(?:tcp|unix|\w*\(|/)`),    // MySQL's own form
}

// password complains of one that is written down.
func (c *checker) password(pos manifests.Pos, text string) bool {
	for _, p := range passwords {
		m := p.FindStringSubmatch(text)
		if m == nil || m[1] == "" || m[1] == "''" || strings.Contains(m[1], hole) || strings.Contains(m[1], "secret.") {
			continue
		}
		c.errorf(pos, "a password is a secret: write dsn: =secret.NAME, or ${secret.NAME} in its place")
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
