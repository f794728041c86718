package smtpeffect

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/mail"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"edda"
	"edda/effects"
)

// TestLineEndsAreRefused: in every value that reaches a header or a command.
func TestLineEndsAreRefused(t *testing.T) {
	o := open(t, how{})
	for _, bad := range []string{"\r\nBcc: evil@evil.example", "\nBcc: x", "\rBcc: x", "a\x00b", "\r\n\r\nbody", "a\u0085b", "a\x7f", "a\x1b[0m", "\xff"} {
		file := func(name, v string) []any {
			f := map[string]any{"name": "a.txt", "content": "x"}
			f[name] = v
			return []any{f}
		}
		for field, v := range map[string]any{
			"subject": "Hi" + bad, "from": "shop@shop.example" + bad, "to": "ann@home.example" + bad, "cc": []any{"Ann" + bad + " <ann@home.example>"},
			"bcc": map[string]any{"name": bad, "address": "ann@home.example"}, "reply_to": map[string]any{"address": "ann" + bad + "@home.example"},
			"headers": map[string]any{"X-A": bad}, "headers ": map[string]any{"X-A" + bad: "a"}, "to ": "=?utf-8?q?a" + quoted(bad) + "?= <ann@home.example>",
			"attachments": file("name", "a"+bad), "attachments ": file("type", "text/plain"+bad), "attachments  ": file("cid", "a"+bad),
		} {
			_, err := provider(t).Call(t.Context(), call("k", o.mailTo(securityNone, map[string]any{strings.TrimSpace(field): v})))
			if !errors.Is(err, effects.ErrNotSent) || !errors.Is(err, edda.Permanent) {
				t.Errorf("%s %q: %v", field, bad, err)
			}
		}
	}
	if o.commands() != "" {
		t.Errorf("the server heard %s", o.commands())
	}
}

// quoted writes every byte as the Q encoding does.
func quoted(s string) (out string) {
	for _, b := range []byte(s) {
		out += fmt.Sprintf("=%02X", b)
	}
	return out
}

func TestAddressesThatAreRefused(t *testing.T) {
	for _, v := range []any{
		nil, "", " ", "ann", "@home.example", "ann@", "a@b@home.example", "ann@home.example, bob@home.example", "ann@home.example;bob@home.example", "ann @home.example", "ann@home example",
		"Ann <ann@home.example>, Bob <bob@home.example>", "friends: ann@home.example;", "friends: Ann <ann@home.example>;", `"a b"@home.example`, `"a> RCPT TO:<evil"@home.example`, "ann@[127.0.0.1]",
		"ann@home.example (comment)", "<ann@home.example> NOTIFY=SUCCESS", "<@relay.example:ann@home.example>", ".ann@home.example", "ann.@home.example", "a..b@home.example", "ann@-home.example", "ann@home..example",
		"ann@home.example.", "ann@ho_me.example", strings.Repeat("a", 65) + "@home.example", "ann@" + strings.Repeat("a.", 130) + "example", "ann@\u2028home.example", "ann\u00a0x@home.example", "a>b@home.example", "a,b@home.example",
		7, true, []any{"ann@home.example"}, map[string]any{}, map[string]any{"name": "Ann"}, map[string]any{"name": 7, "address": "ann@home.example"},
		map[string]any{"address": "Ann <ann@home.example>"}, map[string]any{"address": "ann@home.example", "cc": "x"}, map[string]any{"name": strings.Repeat("n", 201), "address": "ann@home.example"},
	} {
		a, err := addressOf(v)
		if err == nil {
			t.Errorf("%v is %+v", v, a)
		}
		if s, isText := v.(string); isText && len(s) > 5 && strings.Contains(fmt.Sprint(err), s) {
			t.Errorf("the error shows %s", s)
		}
	}
}

func TestMailsThatCannotBeSent(t *testing.T) {
	many := func(n int, v any) []any { return slices.Repeat([]any{v}, n) }
	numbered := []any{}
	for i := range 60 {
		numbered = append(numbered, fmt.Sprintf("a%d@home.example", i))
	}
	tooMany := map[string]any{}
	for i := range 51 {
		tooMany[fmt.Sprintf("X-%d", i)] = "a"
	}
	for want, more := range map[string]map[string]any{
		"to is empty":                 {"to": []any{}},
		"to is empty: ":               {"to": nil},
		"both empty":                  {"text": nil},
		"to has 101 addresses":        {"to": many(101, "ann@home.example")},
		"at most 100 recipients":      {"to": numbered, "cc": strangers(50)},
		"51 names":                    {"headers": tooMany},
		"51 files":                    {"attachments": many(51, map[string]any{"name": "a", "content": ""})},
		"attachments[1]: ":            {"attachments": []any{map[string]any{"name": "a", "content": ""}, "b"}},
		"attachments is a list":       {"attachments": map[string]any{}},
		"without a path":              {"attachments": []any{map[string]any{"name": "../a", "content": ""}}},
		"name is a file's name":       {"attachments": []any{map[string]any{"content": ""}}},
		"each a text":                 {"attachments": []any{map[string]any{"name": "a", "content": 7}}},
		"a file has the fields":       {"attachments": []any{map[string]any{"name": "a", "content": "", "x": ""}}},
		"either content":              {"attachments": []any{map[string]any{"name": "a", "content": "", "base64": ""}}},
		"base64 is none":              {"attachments": []any{map[string]any{"name": "a", "base64": "%"}}},
		"cid is a word":               {"attachments": []any{map[string]any{"name": "a", "content": "", "cid": "<a>"}}},
		"type is the media type":      {"attachments": []any{map[string]any{"name": "a", "content": "", "type": "multipart/mixed"}}},
		"type is the media type ":     {"attachments": []any{map[string]any{"name": "a", "content": "", "type": "text"}}},
		"type is the media type  ":    {"attachments": []any{map[string]any{"name": "a", "content": "", "type": "message/rfc822"}}},
		"longer than 4096":            {"subject": strings.Repeat("x ", 2049)},
		"without a blank":             {"subject": strings.Repeat("x", 999)},
		"headers is a map":            {"headers": "X-A: b"},
		"a name of headers":           {"headers": map[string]any{"Bcc": "evil@evil.example"}},
		"a name of headers ":          {"headers": map[string]any{"X-": "a"}},
		"a name of headers  ":         {"headers": map[string]any{"Resent-To": "evil@evil.example"}},
		"a name of headers   ":        {"headers": map[string]any{"Content-Type": "text/html"}},
		"a name of headers    ":       {"headers": map[string]any{"message-id": "<a@b>"}},
		"there twice":                 {"headers": map[string]any{"X-A": "1", "x-a": "2"}},
		"headers.X-A is a text":       {"headers": map[string]any{"X-A": []any{"1"}}},
		"security is one of":          {"security": "ssl"},
		"auth is one of":              {"auth": "ntlm"},
		"go together":                 {"username": "u"},
		"go together ":                {"password": "s3cret"},
		"holds a NUL":                 {"username": "u\x00v", "password": "s3cret"},
		"server is host:port":         {"server": "s3cret"},
		"server is host:port ":        {"server": "a\r\nb:25"},
		"server is host:port  ":       {"server": ":25"},
		"holds no certificate in PEM": {"security": "tls", "tls": map[string]any{"ca": "s3cret"}},
	} {
		config := map[string]any{"server": "127.0.0.1:1", "security": "none", "from": "shop@shop.example", "to": "ann@home.example", "subject": "s", "text": "t"}
		maps.Copy(config, more)
		_, err := provider(t).Call(t.Context(), call("k", config))
		if !errors.Is(err, effects.ErrNotSent) || !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), strings.TrimRight(want, " ")) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%.100v: %v, want %q", more, err, want)
		}
	}
}

func TestMailsThatNoServerWouldReadAsTheyAre(t *testing.T) {
	for message, want := range map[string]string{
		strings.Repeat("x\r\n", maxMessage/3+1): "more than 10485760", strings.Repeat("x", 999) + "\r\n": "without a blank", "a\rb\r\n": "a line end or a NUL", "a\nb\r\n": "a line end or a NUL", "a\x00\r\n": "a line end or a NUL",
	} {
		if err := sound([]byte(message)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %s", message, err, want)
		}
	}
	if err := sound([]byte(strings.Repeat("x", 998) + "\r\n\r\n")); err != nil {
		t.Error(err)
	}
}

func strangers(n int) (out []any) {
	for i := range n {
		out = append(out, fmt.Sprintf("b%d@home.example", i))
	}
	return out
}

// TestNoValueAddsALineOrARecipient: whatever the values are, a mail that is
// written has the headers and the recipients that the manifest names, each once.
func TestNoValueAddsALineOrARecipient(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	written := map[string]bool{}
	rapid.Check(t, func(t *rapid.T) {
		hostile := rapid.SampledFrom([]string{"name", "subject", "body", "key", "from", "cc", "bcc", "header", "file", "type"}).Draw(t, "hostile")
		text := func(field string) string {
			if field != hostile {
				return "tame"
			}
			return strings.Join(rapid.SliceOfN(rapid.OneOf(rapid.String(), rapid.SampledFrom(pieces())), 0, 5).Draw(t, field), "")
		}
		subject, body, names := text("subject"), text("body"), map[string]string{"From": text("from"), "To": text("name"), "Cc": "tame"}
		cc := text("cc") + " <c@home.example>"
		c := call(text("key"), map[string]any{
			"from": map[string]any{"name": names["From"], "address": "shop@shop.example"}, "to": map[string]any{"name": names["To"], "address": "ann@home.example"},
			"cc": cc, "bcc": text("bcc") + "@home.example", "subject": subject, "text": "x" + body, "html": body, "headers": map[string]any{"X-A": text("header")},
			"attachments": []any{map[string]any{"name": "a" + text("file"), "content": body, "type": "text/plain" + text("type")}},
		})
		l, err := emailOf(c, now)
		if err != nil {
			return
		}
		written[hostile] = true
		if hostile == "cc" {
			list, _ := mail.ParseAddress(cc)
			names["Cc"] = list.Name
		}
		intact(t, l, subject, names)
	})
	if len(written) < 10 {
		t.Errorf("of some fields every value was refused: %v", written)
	}
}

// pieces are what hostile values are made of.
func pieces() []string {
	return []string{
		"\r\n", "\n", "\r", "Bcc: evil@evil.example", "ann@home.example", "<", ">", ",", ";", ":", "\"", "\\", "(", ")", "=?utf-8?q?=0D=0ABcc:_e@e.e?=", "=?", "?=", " ", "   ", "\t",
		"\x00", "\u2028", "\u0085", ".", "\r\n.\r\n", "世", strings.Repeat(" ", 90), strings.Repeat("x", 80), "a", "b",
	}
}

func intact(t *rapid.T, l email, subject string, names map[string]string) {
	m, err := mail.ReadMessage(strings.NewReader(string(l.message)))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range m.Header {
		known := []string{"Cc", "Content-Type", "Date", "From", "Message-Id", "Mime-Version", "Subject", "To", "X-A"}
		if !slices.Contains(known, name) || len(values) != 1 {
			t.Fatalf("header %s: %q", name, values)
		}
	}
	for name, want := range map[string]string{"To": "ann@home.example", "Cc": "c@home.example", "From": "shop@shop.example"} {
		list, err := m.Header.AddressList(name)
		if err != nil || len(list) != 1 || list[0].Address != want || list[0].Name != single(names[name]) {
			t.Fatalf("%s: %v %v", name, list, err)
		}
	}
	if len(l.to) != 3 || l.to[0].String() != "ann@home.example" || l.to[1].String() != "c@home.example" || l.to[2].domain != "home.example" {
		t.Fatalf("recipients %v", l.to)
	}
	o := opened{taken{}, m, nil, nil}
	if got := o.header("Subject"); got != single(subject) {
		t.Fatalf("subject %q, want %q", got, subject)
	}
	if id := m.Header.Get("Message-Id"); id != l.id || !plain(id) {
		t.Fatalf("message id %q", id)
	}
}

// FuzzAddress: what is taken for an address is one mailbox whose every part is
// safe in a command, and its header is read back as that mailbox.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{"ann@home.example", "Ann <ann@home.example>", `"A, B" <a@b.example>`, "jörg@müller.example", "a@b.example, c@d.example", "=?utf-8?q?a?= <a@b.example>", "<a@b>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := addressOf(s)
		if err != nil {
			return
		}
		if p := a.path(); strings.ContainsAny(p[1:len(p)-1], " \t\r\n\x00<>,;:\"\\()[]") || strings.Count(p, "@") != 1 {
			t.Errorf("%q gives the path %q", s, p)
		}
		back, err := mail.ParseAddressList(a.header())
		if err != nil || len(back) != 1 || back[0].Address != a.String() || back[0].Name != a.name {
			t.Errorf("%q gives the header %q: %v", s, a.header(), err)
		}
	})
}

// FuzzHeader: a line that is taken arrives as it is, in a line of its own.
func FuzzHeader(f *testing.F) {
	for _, s := range []string{"a", "a\r\nb", "=?utf-8?q?a?=", "=?utf-8?b?" + base64.StdEncoding.EncodeToString([]byte("\r\n")) + "?=", strings.Repeat(" ", 200), strings.Repeat("世 ", 200)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		config := map[string]any{"from": "a@b.example", "to": "c@d.example", "subject": s, "text": "x"}
		l, err := emailOf(call("k", config), time.Unix(0, 0))
		if err != nil {
			return
		}
		m, err := mail.ReadMessage(strings.NewReader(string(l.message)))
		if err != nil || len(m.Header) != 8 {
			t.Fatalf("%q: %v %v", s, m, err)
		}
		if got := (opened{taken{}, m, nil, nil}).header("Subject"); got != single(s) {
			t.Errorf("%q arrives as %q", s, got)
		}
	})
}
