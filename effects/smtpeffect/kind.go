package smtpeffect

import (
	"fmt"
	"html"
	"net/netip"
	"slices"
	"strings"
	"time"

	"edda/effects"
	"edda/effects/dial"
	"edda/expression"
	"edda/manifests"
)

// timeout of a mail whose effect has none. Servers look for spam between a
// mail's last line and their reply; who does not wait for it sends twice.
const timeout = 2 * time.Minute

// Kind is what effects.Compile needs to know of smtp.
func Kind() effects.Kind {
	return effects.Kind{
		Check: check, Escape: map[string]func(before, value string) string{"html": escape},
		OK: "status >= 200 and status < 300", Timeout: timeout,
	}
}

// escape writes a value into html's template as text: a payload cannot add an
// element. An expression that is the whole html is left as it is.
func escape(_, value string) string { return html.EscapeString(value) }

func fieldNames() []string {
	return []string{"server", "security", "tls", "username", "password", "auth", "from", "reply_to", "to", "cc", "bcc", "subject", "text", "html", "headers", "attachments"}
}

// check tells what is wrong with an smtp: map before anything runs.
func check(m *manifests.Effect) manifests.Problems {
	c := checker{m: m}
	if m.Config == m.Check.Field("smtp") {
		c.errorf(m.Config.Pos, "a check asks what came of a call, and a mail asks nobody")
		return c.problems
	}
	for _, f := range m.Config.Fields {
		c.field(f)
	}
	for _, name := range []string{"server", "from", "to", "subject"} {
		if m.Config.Field(name) == nil {
			c.errorf(m.Config.Pos, "smtp needs %s", name)
		}
	}
	if empty(m.Config.Field("text")) && empty(m.Config.Field("html")) {
		c.errorf(m.Config.Pos, "smtp needs text, html, or both: what the mail says")
	}
	c.credentials()
	c.problems = append(c.problems, dial.CheckTLS(m.File, m.Config.Field("tls"))...)
	return c.problems
}

// empty tells whether nothing is said, or an empty text.
func empty(v *manifests.Value) bool {
	return v == nil || v.Kind == manifests.Literal && (v.Scalar == "" || v.Scalar == nil)
}

type checker struct {
	m        *manifests.Effect
	problems manifests.Problems
}

func (c *checker) errorf(pos manifests.Pos, format string, args ...any) {
	c.problems = append(c.problems, manifests.Problem{File: c.m.File, Pos: pos, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) field(f manifests.Field) {
	literal, isLiteral := f.Value.Const()
	switch f.Name {
	case "server", "tls", "username", "password":
		c.trusted(f)
	case "security":
		c.word(f, securities())
	case "auth":
		c.word(f, auths())
	case "from":
		c.address(f.Name, f.Value)
	case "to", "cc", "bcc", "reply_to":
		c.addresses(f)
	case "subject":
		if _, err := line(f.Name, literal); isLiteral && err != nil {
			c.errorf(f.Value.Pos, "%v", err)
		}
	case "text", "html":
		if _, isText := literal.(string); isLiteral && !isText {
			c.errorf(f.Value.Pos, "%s is a text", f.Name)
		}
	case "headers":
		c.headers(f.Value)
	case "attachments":
		c.files(f.Value)
	default:
		c.unknown(f, "smtp", fieldNames())
	}
}

func (c *checker) unknown(f manifests.Field, what string, known []string) {
	if near := manifests.Nearest(f.Name, known); near != "" {
		c.errorf(f.Pos, "%s knows no %s; did you mean %s?", what, f.Name, near)
		return
	}
	c.errorf(f.Pos, "%s knows no %s; it knows %s", what, f.Name, strings.Join(known, ", "))
}

// word is one of a few, and written out: what decides about encryption comes
// from nobody's payload.
func (c *checker) word(f manifests.Field, known []string) {
	if s, _ := f.Value.Scalar.(string); f.Value.Kind != manifests.Literal || !slices.Contains(known, s) {
		c.errorf(f.Value.Pos, "%s is written out as one of %s", f.Name, strings.Join(known, ", "))
	}
}

// trusted says who gets the credentials: that too comes from nobody's payload.
func (c *checker) trusted(f manifests.Field) {
	if c.refers(f.Value, "payload") {
		c.errorf(f.Value.Pos, "%s may not come from the payload, which would choose who is shown the credentials", f.Name)
	}
	text, _ := f.Value.Scalar.(string)
	switch {
	case f.Name == "server" && f.Value.Kind == manifests.Literal:
		if _, err := hostOf(text); err != nil {
			c.errorf(f.Value.Pos, "%v", err)
		}
	case f.Name == "password" && !c.refers(f.Value, "secret"):
		c.errorf(f.Value.Pos, "a password is a secret: write password: =secret.NAME")
	case f.Name == "username" && f.Value.Kind == manifests.Literal && text == "":
		c.errorf(f.Value.Pos, "username is a text, and not empty")
	}
}

// refers tells whether a value uses a variable.
func (c *checker) refers(v *manifests.Value, name string) (found bool) {
	v.Exprs(func(e *manifests.Expr) {
		p, errs := expression.Compile(e.Source, expression.Options{Names: []string{"payload", "id", "tenant", "secret"}})
		if len(errs) == 0 && slices.Contains(p.Names(), name) { // other errors are told where it is compiled
			found = true
		}
	})
	return found
}

// addresses looks at the addresses that are known.
func (c *checker) addresses(f manifests.Field) {
	values := []*manifests.Value{f.Value}
	if f.Value.Kind == manifests.List {
		values = f.Value.Items
	}
	if f.Name == "to" && len(values) == 0 {
		c.errorf(f.Value.Pos, "to is empty: a mail needs a recipient")
	}
	if len(values) > maxRecipients {
		c.errorf(f.Value.Pos, "%s has %d addresses, more than %d", f.Name, len(values), maxRecipients)
	}
	for _, v := range values {
		c.address(f.Name, v)
	}
}

// address looks at what is known of one.
func (c *checker) address(field string, v *manifests.Value) {
	literal, isLiteral := v.Const()
	if _, err := addressOf(literal); isLiteral && err != nil {
		c.errorf(v.Pos, "%s %v", field, err)
	}
	if isLiteral || v.Kind != manifests.Map {
		if v.Kind == manifests.List && !isLiteral {
			c.errorf(v.Pos, "%s %v", field, errAddress)
		}
		return
	}
	for _, f := range v.Fields {
		if f.Name != "name" && f.Name != "address" {
			c.unknown(f, "an address", []string{"name", "address"})
		}
	}
	if v.Field("address") == nil {
		c.errorf(v.Pos, "an address needs address")
	}
}

func (c *checker) headers(v *manifests.Value) {
	if v.Kind == manifests.Expression {
		return
	}
	if v.Kind != manifests.Map {
		c.errorf(v.Pos, "headers is a map of names and texts")
	}
	for _, h := range v.Fields {
		literal, isLiteral := h.Value.Const()
		if !headerName.MatchString(h.Name) {
			c.errorf(h.Pos, "a name of headers %s; %s is none", errHeaderName, h.Name)
		}
		if _, err := line("headers."+h.Name, literal); isLiteral && err != nil {
			c.errorf(h.Value.Pos, "%v", err)
		}
	}
}

func (c *checker) files(v *manifests.Value) {
	if v.Kind == manifests.Expression {
		return
	}
	if v.Kind != manifests.List {
		c.errorf(v.Pos, "attachments is a list of files, each {name, type, content} or {name, type, base64}")
	}
	for _, item := range v.Items {
		if literal, isLiteral := item.Const(); isLiteral {
			if _, err := fileOf(literal); err != nil {
				c.errorf(item.Pos, "attachments: %v", err)
			}
			continue
		}
		for _, f := range item.Fields {
			if !slices.Contains(fileFields(), f.Name) {
				c.unknown(f, "a file", fileFields())
			}
		}
	}
}

// credentials looks at the fields that belong together.
func (c *checker) credentials() {
	field := c.m.Config.Field
	username, password, security := field("username"), field("password"), field("security")
	if (username == nil) != (password == nil) {
		c.errorf(c.m.Config.Pos, "username and password go together")
	}
	if auth := field("auth"); auth != nil && username == nil {
		c.errorf(auth.Pos, "auth has no meaning without username and password")
	}
	if security == nil || security.Scalar != securityNone {
		return
	}
	if t := field("tls"); t != nil {
		c.errorf(t.Pos, "tls has no meaning with security: none")
	}
	if server := field("server"); username != nil && server != nil && server.Kind == manifests.Literal && !local(server.Scalar) {
		c.errorf(security.Pos, "credentials are not shown over a connection that is not encrypted, but on this machine: use security: starttls or tls")
	}
}

// local tells whether a server's address is this machine's.
func local(server any) bool {
	text, _ := server.(string)
	host, err := hostOf(text)
	at, noAddress := netip.ParseAddr(host)
	return err == nil && (host == "localhost" || noAddress == nil && at.IsLoopback())
}
