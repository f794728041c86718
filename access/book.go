package access

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.yaml.in/yaml/v4"

	"edda/internal/files"
)

// Entry is one entry of a book: a token by its hash, or a client certificate by a
// name in it.
type Entry struct {
	Name    string   `yaml:"name" json:"name"`
	Role    Role     `yaml:"role" json:"role"`
	Tenants []string `yaml:"tenants,flow" json:"tenants"`
	Hash    string   `yaml:"hash,omitempty" json:"hash,omitempty"`
	// Certificate is a DNS name, URI or common name of a verified certificate.
	Certificate string `yaml:"certificate,omitempty" json:"certificate,omitempty"`
	// Expires is when the entry expires, without a reload; zero means never.
	Expires time.Time `yaml:"expires,omitempty" json:"expires,omitzero"`

	sum []byte // decoded Hash; nil without one
}

const (
	// maxEntries bounds the comparisons of one request, which then take 10 µs.
	maxEntries = 1000
	// maxBook bounds the file.
	maxBook = 1 << 20
	// maxTenants bounds the patterns of one entry.
	maxTenants = 100
)

// names matches the allowed names. They hold no character with a meaning in the audit.
var names = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

// Parse reads a book: a YAML list of entries, at most 1 MiB.
func Parse(text []byte) (*Book, error) {
	if len(text) > maxBook {
		return nil, fmt.Errorf("more than %d bytes", maxBook)
	}
	b := &Book{}
	read := yaml.NewDecoder(bytes.NewReader(text))
	read.KnownFields(true)
	if err := read.Decode(&b.entries); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := read.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("want one YAML list of entries and nothing after it")
	}
	return b, b.check()
}

func (b *Book) check() error {
	if len(b.entries) > maxEntries {
		return fmt.Errorf("%d entries: at most %d", len(b.entries), maxEntries)
	}
	seen := map[string]string{}
	for i := range b.entries {
		e := &b.entries[i]
		if err := e.check(); err != nil {
			return fmt.Errorf("entry %d (%q): %w", i+1, e.Name, err)
		}
		for _, mark := range []string{"name " + e.Name, "hash " + e.Hash, "certificate " + e.Certificate} {
			if other, ok := seen[mark]; ok && !strings.HasSuffix(mark, " ") {
				return fmt.Errorf("entry %d (%q): entry %q has the same %s", i+1, e.Name, other, mark)
			}
			seen[mark] = e.Name
		}
	}
	return nil
}

// FieldError says that a field of an entry is missing or invalid.
type FieldError struct{ Field, Value, Want string }

func (e *FieldError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s is missing: %s", e.Field, e.Want)
	}
	return fmt.Sprintf("%s %s: %s", e.Field, e.Value, e.Want)
}

// TakenError says that entry Name already has this value of Field, which must be unique.
type TakenError struct{ Name, Field string }

func (e *TakenError) Error() string { return fmt.Sprintf("entry %s has the same %s", e.Name, e.Field) }

func (e *Entry) check() error {
	if !names.MatchString(e.Name) {
		return &FieldError{"name", e.Name, "want letters, digits, '.', '_', '@' or '-', at most 64"}
	}
	if !slices.Contains(Roles(), e.Role) {
		return &FieldError{"role", string(e.Role), "want viewer, operator or admin"}
	}
	if len(e.Tenants) == 0 || len(e.Tenants) > maxTenants || slices.Contains(e.Tenants, "") {
		return &FieldError{"tenants", strings.Join(e.Tenants, ","), fmt.Sprintf(`name 1 to %d, or "*" for all`, maxTenants)}
	}
	if (e.Hash == "") == (e.Certificate == "") {
		return errors.New("want either hash or certificate")
	}
	if e.Hash == "" {
		return nil
	}
	return e.decode()
}

func (e *Entry) decode() error {
	sum, err := ParseHash(e.Hash)
	e.sum = sum[:]
	return err
}

// Line returns the entry as a line of a book.
func (e Entry) Line() string {
	tenants := make([]string, len(e.Tenants))
	for i, t := range e.Tenants {
		tenants[i] = fmt.Sprintf("%q", t)
	}
	how := "hash: " + fmt.Sprintf("%q", e.Hash)
	if e.Certificate != "" {
		how = "certificate: " + fmt.Sprintf("%q", e.Certificate)
	}
	if !e.Expires.IsZero() {
		how += ", expires: " + e.Expires.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("- {name: %q, role: %s, tenants: [%s], %s}\n", e.Name, e.Role, strings.Join(tenants, ", "), how)
}

// Add appends an entry to the text of a book and keeps the rest unchanged. An invalid
// entry is a [FieldError], an entry that conflicts with the book a [TakenError].
func Add(text []byte, e Entry) ([]byte, error) {
	b, err := Parse(text)
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(e.check(), b.taken(e)); err != nil {
		return nil, err
	}
	if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
		text = append(slices.Clone(text), '\n')
	}
	out := append(slices.Clone(text), e.Line()...)
	if _, err := Parse(out); err != nil {
		return nil, fmt.Errorf("the book does not take another line (is it a list of lines that begin with '- ' at the left edge?): %w", err)
	}
	return out, nil
}

// taken returns a TakenError if an entry has e's name or certificate.
func (b *Book) taken(e Entry) error {
	for _, other := range b.entries {
		if other.Name == e.Name {
			return &TakenError{other.Name, "name"}
		}
		if e.Certificate != "" && other.Certificate == e.Certificate {
			return &TakenError{other.Name, "certificate"}
		}
	}
	return nil
}

// Remove removes the entry of that name from the text of a book. Comments stay.
func Remove(text []byte, name string) ([]byte, error) {
	b, err := Parse(text)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(b.entries, func(e Entry) bool { return e.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no token %q", name)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	list := doc.Content[0]
	list.Content = slices.Delete(list.Content, i, i+1)
	if len(list.Content) == 0 {
		return nil, nil // Add cannot append to the empty YAML list, []
	}
	return yaml.Marshal(&doc)
}

// Tokens holds the book of a file as it was last read. It is safe for concurrent use.
type Tokens struct {
	path    string
	reading sync.Mutex // a slow read of the file must not replace what a later one has read
	now     atomic.Pointer[Book]
}

// Open reads the book from a file.
func Open(path string) (*Tokens, error) {
	t := &Tokens{path: path}
	return t, t.Reload()
}

// Reload reads the file again. If it fails, the previous book stays in use.
func (t *Tokens) Reload() error {
	t.reading.Lock()
	defer t.reading.Unlock()
	text, err := files.Read(t.path, maxBook)
	if err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	b, err := Parse(text)
	if err != nil {
		return fmt.Errorf("tokens: %s: %w", t.path, err)
	}
	t.now.Store(b)
	return nil
}

// Book returns the current book.
func (t *Tokens) Book() *Book { return t.now.Load() }
