package smtpeffect

import (
	"errors"
	"net/mail"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// The bounds of an address (RFC 5321).
const (
	maxLocal  = 64
	maxDomain = 253
	// maxName bounds the name beside an address.
	maxName = 200
)

// address is one mailbox. It is parsed strictly: no groups, comments, quoted local parts or routes.
// The domain is in its ASCII form.
type address struct{ name, local, domain string }

func (a address) String() string { return a.local + "@" + a.domain }

// path formats the address for an SMTP command.
func (a address) path() string { return "<" + a.String() + ">" }

// header formats the address for a header, with its name quoted or encoded.
func (a address) header() string {
	switch word := encoded(a.name); {
	case a.name == "":
		return a.path()
	case word != a.name:
		return word + " " + a.path()
	default:
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word) + `" ` + a.path()
	}
}

func (a address) ascii() bool { return isASCII(a.local) }

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

// errAddress does not show the address, which may be a person's.
var errAddress = errors.New("is no single address such as ann@shop.example, Ann <ann@shop.example> or {name: Ann, address: ann@shop.example}")

// addressOf reads one address: a text, or a map of name and address.
func addressOf(v any) (address, error) {
	switch v := v.(type) {
	case string:
		return written(strings.Trim(v, " "))
	case map[string]any:
		return named(v)
	}
	return address{}, errAddress
}

// written parses an address as people write it.
func written(s string) (address, error) {
	if !strings.Contains(s, "<") {
		return mailbox("", s)
	}
	if !clean(s) {
		return address{}, errAddress
	}
	parsed, err := mail.ParseAddress(s)
	if err != nil || !strings.HasSuffix(s, "<"+parsed.Address+">") {
		return address{}, errAddress
	}
	return mailbox(parsed.Name, parsed.Address)
}

func named(v map[string]any) (address, error) {
	name, isText := v["name"].(string)
	at, _ := v["address"].(string)
	if !isText && v["name"] != nil {
		return address{}, errAddress
	}
	for key := range v {
		if key != "name" && key != "address" {
			return address{}, errAddress
		}
	}
	return mailbox(name, at)
}

// localPart is a dot-atom of RFC 5321, with the characters of RFC 6531.
var localPart = regexp.MustCompile("^[a-zA-Z0-9!#$%&'*+/=?^_`{|}~\\x{80}-\\x{10FFFF}-]+(\\.[a-zA-Z0-9!#$%&'*+/=?^_`{|}~\\x{80}-\\x{10FFFF}-]+)*$")

// hostName is a host name of letters, digits and hyphens.
var hostName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)

func mailbox(name, at string) (address, error) {
	i := strings.LastIndex(at, "@")
	if i < 1 || i > maxLocal || len(name) > maxName || !clean(name) || !clean(at) || strings.ContainsFunc(at, unicode.IsSpace) {
		return address{}, errAddress
	}
	domain, err := idna.Lookup.ToASCII(at[i+1:])
	if err != nil || len(domain) > maxDomain || !hostName.MatchString(domain) || !localPart.MatchString(at[:i]) {
		return address{}, errAddress
	}
	return address{name: single(name), local: at[:i], domain: domain}, nil
}

// clean reports whether a text may be in a header: UTF-8 without control characters, except tabs.
func clean(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) && r != '\t' })
}
