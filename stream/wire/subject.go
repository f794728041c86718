package wire

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"

	"edda"
)

// Family is the kind of a subject: its first token after the tenant, and for echoes also the last
// one.
type Family string

// The families of subjects.
const (
	FamilyAggregate Family = "aggregate"      // name: aggregate type; id: aggregate id
	FamilyEffect    Family = "effect"         // name: effect; id: command id
	FamilyWorkflow  Family = "workflow"       // name: saga; id: key
	FamilyCommand   Family = "command"        // name: aggregate type; id: aggregate id
	FamilyResult    Family = "effect_result"  // name: effect; id: command id
	FamilyFact      Family = "workflow_event" // name: saga; id: key
	// FamilyEcho is a result's subject with one more token, so that a filter on FamilyResult does
	// not match it.
	FamilyEcho Family = FamilyResult + echoToken
	// FamilyUnescaped are the subjects of aggregate events with more tokens. Their publishers did not
	// escape a dot. They are stored, so that the message becomes a dead letter that says so.
	FamilyUnescaped Family = FamilyAggregate + unescapedTokens
)

// familyAny stands for every family in a pattern: of all subjects that end with the id.
const familyAny Family = "*"

// echoToken ends the subject of an echo.
const echoToken = ".echo"

// unescapedTokens ends the pattern of unescaped subjects.
const unescapedTokens = ".>"

// MaxSubject bounds the length of a subject in bytes. NATS advises less than 256.
const MaxSubject = 255

const (
	// emptyToken stands for the empty string, because NATS allows no empty token. No escape has '-'
	// after '%'.
	emptyToken = "%-"
	// shortMark begins the SHA-256 of an id that was too long.
	shortMark = "%~"
	// shortLen is the length of the mark and the base64 of 32 bytes.
	shortLen = len(shortMark) + 43
)

// Subject is a parsed, unescaped subject.
type Subject struct {
	Tenant string
	Family Family
	Name   string
	ID     string
	// Short is set if the id was too long. ID is then the token with its hash, and the body has the
	// id.
	Short bool
}

// Is reports whether the subject is that of the id.
func (s Subject) Is(id string) bool {
	if s.Short {
		return s.ID == shorten(id)
	}
	return s.ID == id
}

// Grammar builds and parses subjects. The zero value has tenancy on.
type Grammar struct {
	// NoTenancy drops the prefix "tenant.<tenant>."; the tenant is then empty.
	NoTenancy bool
}

// Build returns the subject. It writes characters that a token cannot hold (controls, space, '.',
// '*', '>') as %XX, and an empty token as "%-". If the subject would exceed MaxSubject, it replaces
// the id by its hash. If it is still too long, the error is edda.Permanent.
func (g Grammar) Build(s Subject) (string, error) {
	subject := g.join(s, escape(s.ID))
	if s.Short {
		subject = g.join(s, s.ID)
	} else if len(subject) > MaxSubject {
		subject = g.join(s, shorten(s.ID))
	}
	if len(subject) > MaxSubject {
		return "", edda.Classify(edda.Permanent, "subject of %s %.40q of tenant %.40q is longer than %d bytes",
			s.Family, s.Name, s.Tenant, MaxSubject)
	}
	return subject, nil
}

func (g Grammar) join(s Subject, id string) string {
	return g.tokens(escape(s.Tenant), s.Family, escape(s.Name), id)
}

// tokens joins the tokens of a subject or a pattern.
func (g Grammar) tokens(tenant string, f Family, name, id string) string {
	last := ""
	switch f {
	case FamilyEcho:
		f, last = FamilyResult, echoToken
	case FamilyUnescaped:
		f, last = FamilyAggregate, unescapedTokens
	}
	if g.NoTenancy {
		return string(f) + "." + name + "." + id + last
	}
	return "tenant." + tenant + "." + string(f) + "." + name + "." + id + last
}

// Parse parses a subject. It reverses Build, and keeps a '%' that begins no escape.
func (g Grammar) Parse(subject string) (Subject, error) {
	rest := subject
	var s Subject
	if !g.NoTenancy {
		word, after, found := strings.Cut(subject, ".")
		if !found || word != "tenant" {
			return s, fmt.Errorf("subject %.80q does not begin with a tenant", subject)
		}
		word, rest, _ = strings.Cut(after, ".")
		s.Tenant = unescape(word)
	}
	family, rest, _ := strings.Cut(rest, ".")
	name, id, found := strings.Cut(rest, ".")
	s.Family = Family(family)
	if base, echo := strings.CutSuffix(id, echoToken); echo && s.Family == FamilyResult {
		s.Family, id = FamilyEcho, base
	}
	if strings.Contains(id, ".") && known(Family(family)) {
		return Subject{Tenant: s.Tenant}, fmt.Errorf("subject %.80q has an id of %d tokens: write a dot in an id as %%2E, and other characters as docs/NATS.md says",
			subject, strings.Count(id, ".")+1)
	}
	if !found || !known(Family(family)) {
		return Subject{Tenant: s.Tenant}, fmt.Errorf("subject %.80q is not of the form <kind>.<name>.<id>", subject)
	}
	s.Name = unescape(name)
	if strings.HasPrefix(id, shortMark) && len(id) == shortLen {
		s.ID, s.Short = id, true
	} else {
		s.ID = unescape(id)
	}
	return s, nil
}

func known(f Family) bool {
	switch f {
	case FamilyAggregate, FamilyEffect, FamilyWorkflow, FamilyCommand, FamilyResult, FamilyFact:
		return true
	}
	return false
}

// All returns the pattern of all subjects of a family.
func (g Grammar) All(f Family) string { return g.pattern("*", f, "*") }

// pattern returns a filter. It escapes tenant and name unless they are "*".
func (g Grammar) pattern(tenant string, f Family, name string) string {
	return g.tokens(wild(tenant), f, wild(name), "*")
}

func wild(token string) string {
	if token == "*" {
		return token
	}
	return escape(token)
}

func shorten(id string) string {
	sum := sha256.Sum256([]byte(id))
	return shortMark + base64.RawURLEncoding.EncodeToString(sum[:])
}

const hexDigits = "0123456789ABCDEF"

// escape writes any bytes as one token. Text beyond ASCII stays readable.
func escape(s string) string {
	if s == "" {
		return emptyToken
	}
	if !strings.ContainsFunc(s, illegal) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if illegal(r) {
			for _, c := range []byte(s[i : i+size]) {
				b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
			}
		} else {
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String()
}

// illegal includes the replacement rune, so that invalid UTF-8 survives, too.
func illegal(r rune) bool {
	return r <= ' ' || r == 0x7f || r == '.' || r == '*' || r == '>' || r == '%' || r == utf8.RuneError
}

func unescape(token string) string {
	if token == emptyToken {
		return ""
	}
	if !strings.Contains(token, "%") {
		return token
	}
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		if token[i] == '%' && i+2 < len(token) {
			if hi, lo := unhex(token[i+1]), unhex(token[i+2]); hi >= 0 && lo >= 0 {
				b.WriteByte(byte(hi<<4 | lo))
				i += 2
				continue
			}
		}
		b.WriteByte(token[i])
	}
	return b.String()
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}

// Covers reports whether one of the stream's subjects matches everything that the wanted pattern
// matches.
func Covers(have []string, want string) bool {
	for _, h := range have {
		if subset(strings.Split(want, "."), strings.Split(h, ".")) {
			return true
		}
	}
	return false
}

func subset(want, have []string) bool {
	for i, h := range have {
		if h == ">" {
			return len(want) > i
		}
		if i >= len(want) || (h != "*" && h != want[i]) {
			return false
		}
	}
	return len(want) == len(have)
}

// Overlap reports whether a subject may match both patterns.
func Overlap(a, b string) bool {
	p, q := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(p), len(q)) {
		if p[i] == ">" || q[i] == ">" {
			return true
		}
		if p[i] != q[i] && p[i] != "*" && q[i] != "*" {
			return false
		}
	}
	return len(p) == len(q)
}

// The streams.
const (
	AggregateEvents  = "AGGREGATE_EVENTS"
	WorkflowCommands = "WORKFLOW_COMMANDS"
	WorkflowEvents   = "WORKFLOW_EVENTS"
)

// maxNamePart keeps edda_effect_<part>_<hash> below the 32 characters that NATS advises.
const maxNamePart = 10

// ConsumerName returns edda_<role>_<part>_<hash>. The part is for people. The hash covers
// everything that distinguishes consumers.
func ConsumerName(role, part string, distinct ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{part}, distinct...), "\x00")))
	hash := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:5]))
	part = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, part)
	if part != "" {
		part = part[:min(len(part), maxNamePart)] + "_"
	}
	return ConsumerPrefix(role) + part + hash
}

// ConsumerPrefix returns the prefix of a role's consumer names.
func ConsumerPrefix(role string) string { return "edda_" + role + "_" }
