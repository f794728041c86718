package smtpeffect

import (
	"encoding/base64"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"edda/effects"
)

// opened is a mail as a reader sees it: its parts by file name, by Content-ID,
// or by type.
type opened struct {
	taken
	*mail.Message
	parts map[string]string
	kinds map[string]string
}

func read(t *testing.T, m taken) opened {
	t.Helper()
	parsed, err := mail.ReadMessage(strings.NewReader(m.data))
	if err != nil {
		t.Fatal(err)
	}
	o := opened{m, parsed, map[string]string{}, map[string]string{}}
	o.walk(t, parsed.Body, func(name string) string { return parsed.Header.Get(name) })
	return o
}

func (o opened) walk(t *testing.T, body io.Reader, header func(string) string) {
	t.Helper()
	kind, params, err := mime.ParseMediaType(header("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(kind, "multipart/") {
		o.kinds[kind] = kind
		for r := multipart.NewReader(body, params["boundary"]); ; {
			part, err := r.NextRawPart()
			if err == io.EOF {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			o.walk(t, part, part.Header.Get)
		}
	}
	name := kind
	if _, params, err := mime.ParseMediaType(header("Content-Disposition")); err == nil {
		name = params["filename"]
	}
	if id := header("Content-ID"); id != "" {
		name = id
	}
	o.parts[name], o.kinds[name] = decode(t, body, header("Content-Transfer-Encoding")), header("Content-Type")
}

func decode(t *testing.T, body io.Reader, encoding string) string {
	t.Helper()
	switch encoding {
	case "quoted-printable":
		body = quotedprintable.NewReader(body)
	case "base64":
		body = base64.NewDecoder(base64.StdEncoding, body)
	}
	b, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// header is a header's value, decoded.
func (o opened) header(name string) string {
	v, err := new(mime.WordDecoder).DecodeHeader(o.Header.Get(name))
	if err != nil {
		return err.Error()
	}
	return v
}

// part is a text with the line ends of this machine.
func (o opened) part(name string) string { return strings.ReplaceAll(o.parts[name], "\r\n", "\n") }

// send gives a mail to an office and reads what it got.
func send(t *testing.T, more map[string]any) opened {
	t.Helper()
	o := open(t, how{prepare: func(s *smtp.Server) { s.EnableSMTPUTF8, s.MaxMessageBytes = true, 20<<20 }})
	r, err := provider(t).Call(t.Context(), call("k", o.mailTo(securityNone, more)))
	if err != nil || r.Status != 250 || len(o.got()) != 1 {
		t.Fatalf("%+v %v, %d mails", r, err, len(o.got()))
	}
	return read(t, o.got()[0])
}

func TestAnswerOfAMailThatWasTaken(t *testing.T) {
	o := open(t, how{})
	r, err := provider(t).Call(t.Context(), call("k", o.mailTo(securityNone, nil)))
	want := "map[code:250 enhanced:2.0.0 message:OK: queued message_id:<k.acme@shop.example> rejected:[]]"
	if err != nil || r.Status != 250 || fmt.Sprint(r.Body) != want {
		t.Errorf("%+v %v", r, err)
	}
	if o.commands() != "EHLO MAIL RCPT DATA QUIT" {
		t.Errorf("said %s", o.commands())
	}
}

func TestAddressesInHeaderAndEnvelope(t *testing.T) {
	got := send(t, map[string]any{
		"from": map[string]any{"name": "Doe, Jörg \\ \"J\"", "address": "shop@Shop.example"},
		"to":   []any{"ann@home.example", "Ann <ann@home.example>", map[string]any{"name": "Bob; <evil@evil.example>", "address": "bob@home.example"}},
		"cc":   "\"C, D\" <c@home.example>", "bcc": []any{"secret@home.example"}, "reply_to": []any{"r@shop.example", "s@shop.example"},
	})
	if got.from != "shop@shop.example" || fmt.Sprint(got.to) != "[ann@home.example bob@home.example c@home.example secret@home.example]" {
		t.Errorf("envelope %s %s", got.from, got.to)
	}
	for name, want := range map[string]string{
		"From": `Doe, Jörg \ "J" shop@shop.example`, "Reply-To": " r@shop.example;  s@shop.example", "Cc": "C, D c@home.example",
		"To": " ann@home.example; Ann ann@home.example; Bob; <evil@evil.example> bob@home.example",
	} {
		list, err := got.Header.AddressList(name)
		var all []string
		for _, a := range list {
			all = append(all, a.Name+" "+a.Address)
		}
		if text := strings.Join(all, "; "); err != nil || text != want {
			t.Errorf("%s: %s %v, want %s", name, text, err, want)
		}
	}
	if strings.Contains(got.data, "secret@") || got.Header.Get("Bcc") != "" {
		t.Error("bcc is in the mail")
	}
}

func TestTextsArriveAsTheyAre(t *testing.T) {
	long := strings.Repeat("ein sehr langer Satz mit Ümlaut ", 100)
	for _, s := range []string{
		"plain", "Grüße, 世界 🎉", ".\n..\n.a\n\r\n.\r\nb", "ends with a line\n", long, strings.Repeat("x", 5000), "a = b =3D", "tab\there ", "From me\n--\nsig", "NUL \x00 and bell \a", "lone \r return",
	} {
		got := send(t, map[string]any{"text": s, "html": "<p>" + s + "</p>"})
		want := strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n"), "\n", "\n")
		if text := got.part("text/plain"); text != want {
			t.Errorf("text %.60q, want %.60q", text, want)
		}
		if html := got.part("text/html"); html != "<p>"+want+"</p>" {
			t.Errorf("html %.60q", html)
		}
	}
}

func TestSubjectsArriveAsTheyAre(t *testing.T) {
	for s, want := range map[string]string{
		"Hello": "Hello", "Grüße, 世界 🎉": "Grüße, 世界 🎉", strings.Repeat("ü ", 400) + "!": strings.Repeat("ü ", 400) + "!", strings.Repeat("word ", 300) + "!": strings.Repeat("word ", 300) + "!",
		"  many \t  blanks ": "many blanks", strings.Repeat(" ", 300) + "Bcc: x@y.example": "Bcc: x@y.example", "=?UTF-8?q?decoded?=": "=?UTF-8?q?decoded?=",
		"=?UTF-8?b?" + strings.Repeat("世", 60): "=?UTF-8?b?" + strings.Repeat("世", 60), "a\u00a0b": "a\u00a0b", "a" + strings.Repeat("世", 60): "a" + strings.Repeat("世", 60), "": "",
	} {
		if got := send(t, map[string]any{"subject": s, "headers": map[string]any{"X-Same": s}}); got.header("Subject") != want || got.header("X-Same") != want {
			t.Errorf("subject %.80q and %.80q, want %.80q", got.header("Subject"), got.header("X-Same"), want)
		}
	}
}

func TestHeaders(t *testing.T) {
	got := send(t, map[string]any{"headers": map[string]any{
		"X-Text": "a", "X-Number": 9007199254740993, "X-Flag": true, "X-None": nil, "list-unsubscribe": "<mailto:a@shop.example>, <https://shop.example/u>", "References": "<1@a> <2@b>", "Auto-Submitted": "auto-generated",
	}})
	for name, want := range map[string]string{"X-Text": "a", "X-Number": "9007199254740993", "X-Flag": "true", "X-None": "", "List-Unsubscribe": "<mailto:a@shop.example>, <https://shop.example/u>", "References": "<1@a> <2@b>", "Auto-Submitted": "auto-generated", "Mime-Version": "1.0"} {
		if got.Header.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, got.Header.Get(name), want)
		}
	}
	if at, err := got.Header.Date(); err != nil || time.Since(at).Abs() > time.Minute {
		t.Errorf("date %v %v", at, err)
	}
	if strings.Contains(strings.ToLower(got.data), "go-mail") {
		t.Error("the mail names its library")
	}
}

func TestFilesArriveByteForByte(t *testing.T) {
	var all []byte
	for i := range 256 {
		all = append(all, byte(i))
	}
	binary := string(all) + "\r\n.\r\n\n.\n" + string(all)
	got := send(t, map[string]any{"html": `<img src="cid:logo">`, "attachments": []any{
		map[string]any{"name": "all.bin", "base64": base64.StdEncoding.EncodeToString([]byte(binary))},
		map[string]any{"name": "Grüße \"quoted\"; x=1 世界.txt", "type": "text/plain; charset=utf-8", "content": ".\nlines\r\nkept\n"},
		map[string]any{"name": "logo.png", "type": "image/png", "content": "png", "cid": "logo"},
		map[string]any{"name": "empty", "content": ""},
	}})
	for name, want := range map[string]string{"all.bin": binary, "Grüße \"quoted\"; x=1 世界.txt": ".\nlines\r\nkept\n", "<logo>": "png", "empty": "", "text/plain": "Hi Ann", "text/html": `<img src="cid:logo">`} {
		if content, found := got.parts[name]; content != want || !found {
			t.Errorf("%s: %.80q", name, content)
		}
	}
	for _, kind := range []string{"multipart/mixed", "multipart/related", "multipart/alternative"} {
		if got.kinds[kind] == "" {
			t.Errorf("no %s", kind)
		}
	}
	if got.kinds["all.bin"] != "application/octet-stream" || got.kinds["<logo>"] != "image/png" {
		t.Errorf("types %v", got.kinds)
	}
}

func TestFilesFromThePayload(t *testing.T) {
	for _, v := range []any{nil, []any{}} {
		if got := send(t, map[string]any{"attachments": v}); len(got.parts) != 1 {
			t.Errorf("parts %v", got.parts)
		}
	}
}

func TestMessageIDs(t *testing.T) {
	tests := []struct{ key, id, tenant, want string }{
		{"0198-k_1", "c", "acme", "<0198-k_1.acme@shop.example>"}, {"", "c", "acme", "<c.acme@shop.example>"},
		{"a b>\r\n", "c", "acme", ""}, {"k", "c", "", ""}, {strings.Repeat("k", 65), "c", "acme", ""}, {"k.acme", "c", "acme", ""}, {"k", "c", "a.b", ""},
	}
	seen := map[string]bool{}
	for _, tt := range tests {
		c := effects.Call{Key: tt.key, ID: tt.id, Tenant: tt.tenant}
		got := messageID(c, "shop.example")
		if tt.want != "" && got != tt.want || got != messageID(c, "shop.example") || seen[got] || !plain(got) {
			t.Errorf("%+v: %s", tt, got)
		}
		seen[got] = true
	}
}

// plain reports whether an id is one of letters that no server changes.
func plain(id string) bool {
	return strings.Trim(id[1:len(id)-1], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.@") == "" && len(id) < 200
}

func TestLettersBeyondASCII(t *testing.T) {
	got := send(t, map[string]any{"to": "jörg@müller.example"})
	if fmt.Sprint(got.to) != "[jörg@xn--mller-kva.example]" || !got.utf8 {
		t.Errorf("envelope %v, utf8 %v", got.to, got.utf8)
	}
	if got := send(t, map[string]any{"to": "ann@müller.example"}); got.utf8 {
		t.Error("a domain in ASCII form needs no SMTPUTF8")
	}
	o := open(t, how{})
	for _, field := range []string{"to", "from", "reply_to", "bcc"} {
		_, err := provider(t).Call(t.Context(), call("k", o.mailTo(securityNone, map[string]any{field: "jörg@home.example"})))
		if err == nil || !strings.Contains(err.Error(), "SMTPUTF8") || len(o.got()) != 0 {
			t.Errorf("%s: %v", field, err)
		}
	}
}
