package smtpeffect

import (
	"errors"
	"fmt"
	"html"
	"net/netip"
	"time"

	"edda/effects"
	"edda/effects/dial"
	"edda/effects/spec"
	"edda/manifests"
)

// timeout of an effect that has none. Servers check for spam between the last line of a mail and
// their reply. A shorter timeout would send the mail twice.
const timeout = 2 * time.Minute

// Kind describes smtp to the compiler of effects.
func Kind() effects.ProviderKind {
	return effects.ProviderKind{
		Spec: fields(), NoCheck: "a check asks what came of a call, and a mail asks nobody", Escape: map[string]func(before, value string) string{"html": escape},
		OK: "status >= 200 and status < 300", Timeout: timeout,
	}
}

// escape writes a value into the template of html as text, so that a payload cannot add an element.
// An expression that is the whole html stays as it is.
func escape(_, value string) string { return html.EscapeString(value) }

// shown completes the message about a field that a payload must not choose.
const shown = "who is shown the credentials"

// fields describes an smtp: map. Fields that choose the encryption and the receiver of the
// credentials may not come from a payload.
func fields() *spec.Fields {
	tls, from := dial.TLSField(), addressField("from")
	tls.Trusted, from.Needed = shown, "who sends the mail"
	return &spec.Fields{Name: "smtp", Check: checkTogether, Fields: []spec.Field{
		{Name: "server", Needed: "the host:port that takes the mail", Trusted: shown, Read: spec.Reads(func(v any) (string, error) {
			text, _ := v.(string)
			return hostOf(text)
		})},
		{Name: "security", Type: spec.Text, Literal: true, Words: securities()},
		tls,
		{Name: "username", Type: spec.Text, Trusted: shown},
		{Name: "password", Trusted: shown, Check: checkPassword},
		{Name: "auth", Type: spec.Text, Literal: true, Words: auths()},
		from,
		{Name: "reply_to", Check: checkAddresses}, {Name: "to", Needed: "who gets the mail", Check: checkAddresses},
		{Name: "cc", Check: checkAddresses}, {Name: "bcc", Check: checkAddresses},
		{Name: "subject", Needed: "what the mail is about", Read: spec.Reads(func(v any) (string, error) { return line("subject", v) })},
		{Name: "text", Read: isText("text")}, {Name: "html", Read: isText("html")},
		{Name: "headers", Type: spec.Map, Says: "a map of names and texts", Check: checkHeaders},
		{Name: "attachments", Type: spec.List, Says: "a list of files, each {name, type, content} or {name, type, base64}", Items: attachment()},
	}}
}

func isText(name string) func(any) error {
	return func(v any) error {
		if _, is := v.(string); !is {
			return errors.New(name + " is a text")
		}
		return nil
	}
}

func checkPassword(c *spec.Checker, f manifests.Field) {
	if !spec.Uses(f.Value, "secret") {
		c.Errorf(f.Value.Pos, "a password is a secret: write password: =secret.NAME")
	}
}

// addressField describes a field with one address.
func addressField(name string) spec.Field {
	return spec.Field{
		Name: name,
		Of:   &spec.Fields{Name: "an address", Fields: []spec.Field{{Name: "name"}, {Name: "address", Needed: "where the mail goes"}}},
		Read: func(v any) error {
			if _, err := addressOf(v); err != nil {
				return fmt.Errorf("%s %w", name, err)
			}
			return nil
		},
		Check: func(c *spec.Checker, f manifests.Field) {
			if _, literal := f.Value.Const(); !literal && f.Value.Kind == manifests.List {
				c.Errorf(f.Value.Pos, "%s %v", name, errAddress)
			}
		},
	}
}

// checkAddresses checks an address or a list of addresses.
func checkAddresses(c *spec.Checker, f manifests.Field) {
	values := []*manifests.Value{f.Value}
	if f.Value.Kind == manifests.List {
		values = f.Value.Items
	}
	if f.Name == "to" && len(values) == 0 {
		c.Errorf(f.Value.Pos, "to is empty: a mail needs a recipient")
	}
	if len(values) > maxRecipients {
		c.Errorf(f.Value.Pos, "%s has %d addresses, more than %d", f.Name, len(values), maxRecipients)
	}
	for _, v := range values {
		c.Field(addressField(f.Name), manifests.Field{Name: f.Name, Pos: v.Pos, Value: v})
	}
}

func checkHeaders(c *spec.Checker, f manifests.Field) {
	for _, h := range f.Value.Fields {
		if !headerName.MatchString(h.Name) {
			c.Errorf(h.Pos, "a name of headers %s; %s is none", errHeaderName, h.Name)
		}
		literal, isLiteral := h.Value.Const()
		if _, err := line("headers."+h.Name, literal); isLiteral && err != nil {
			c.Errorf(h.Value.Pos, "%v", err)
		}
	}
}

// attachment describes an entry of attachments.
func attachment() *spec.Field {
	file := spec.Fields{Name: "a file"}
	for _, name := range fileFields() {
		file.Fields = append(file.Fields, spec.Field{Name: name})
	}
	return &spec.Field{Name: "attachments", Of: &file, Read: func(v any) error {
		if _, err := fileOf(v); err != nil {
			return fmt.Errorf("attachments: %w", err)
		}
		return nil
	}}
}

// checkTogether checks fields that depend on each other.
func checkTogether(c *spec.Checker, m *manifests.Value) {
	if empty(m.Field("text")) && empty(m.Field("html")) {
		c.Errorf(m.Pos, "smtp needs text, html, or both: what the mail says")
	}
	username, security := m.Field("username"), m.Field("security")
	if (username == nil) != (m.Field("password") == nil) {
		c.Errorf(m.Pos, "username and password go together")
	}
	if auth := m.Field("auth"); auth != nil && username == nil {
		c.Errorf(auth.Pos, "auth has no meaning without username and password")
	}
	if security == nil || security.Scalar != securityNone {
		return
	}
	if t := m.Field("tls"); t != nil {
		c.Errorf(t.Pos, "tls has no meaning with security: none")
	}
	if server := m.Field("server"); username != nil && server != nil && server.Kind == manifests.Literal && !local(server.Scalar) {
		c.Errorf(security.Pos, "credentials are not shown over a connection that is not encrypted, but on this machine: use security: starttls or tls")
	}
}

// empty reports whether a field is absent or an empty text.
func empty(v *manifests.Value) bool {
	return v == nil || v.Kind == manifests.Literal && (v.Scalar == "" || v.Scalar == nil)
}

// local reports whether a server's address is a loopback address.
func local(server any) bool {
	text, _ := server.(string)
	host, err := hostOf(text)
	at, noAddress := netip.ParseAddr(host)
	return err == nil && (host == "localhost" || noAddress == nil && at.IsLoopback())
}
