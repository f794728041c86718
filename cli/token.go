package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"edda"
	"edda/access"
	"edda/internal/files"
	"edda/manifests"
)

// envTokens names the file for edda token, as it does for edda run.
const envTokens = "EDDA_TOKENS_FILE"

// tokenBook is the token file of edda token.
type tokenBook struct {
	term *terminal
	file string
}

func (t *terminal) tokenCommand() *cobra.Command {
	b := &tokenBook{term: t}
	noun := &cobra.Command{Use: "token", Short: "Create, list and revoke tokens of callers", Args: noun, RunE: help,
		Long: `Create, list and revoke the tokens of callers. The token file (edda run --tokens FILE)
has a line for each: name, role, tenants and the hash of the token. Load a changed file
into a running Edda with edda reload.`}
	noun.PersistentFlags().StringVar(&b.file, "tokens", "", "the file ("+envTokens+")")
	onlyWords(noun, "tokens")
	noun.AddCommand(b.create(), b.list(), b.revoke())
	return noun
}

func (b *tokenBook) create() *cobra.Command {
	e, role, expires, actor := access.Entry{}, "", "", uint32(0)
	c := &cobra.Command{
		Use: "create --name NAME --role ROLE --tenants T,...", Short: "Create a token; it is shown once", Args: args(cobra.NoArgs),
		Long: `Create a token and print it once to standard output; only its hash is kept. The line
with the hash is added to the file of --tokens, or printed if no file is named.
With --certificate no token is created: a verified client certificate of that name
(DNS, URI or common name) identifies the caller. With --expires the token is refused
after that time, without a reload. With --actor it is a token of the Hero coordinator,
and its line belongs into the file of hero.api.tokens.`,
		Example: "  edda token create --tokens tokens.yaml --name ops --role operator --tenants 'acme,eu-*' --expires 90d > ops.token\n  edda token create --actor 1001 > actor.token",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("actor") {
				return b.ofActor(cmd, actor)
			}
			e.Role = access.Role(role)
			var err error
			if e.Expires, err = expiresFlag(expires, time.Now()); err != nil {
				return err
			}
			return b.add(e)
		},
	}
	f := c.Flags()
	f.StringVar(&e.Name, "name", "", "name of the caller, for the audit")
	f.StringVar(&role, "role", "", "viewer reads, operator acts, admin does everything")
	f.StringSliceVar(&e.Tenants, "tenants", nil, "its tenants: names or patterns; '*' for all and for the process")
	f.StringVar(&e.Certificate, "certificate", "", "a name in a client certificate, instead of a token")
	f.StringVar(&expires, "expires", "", "duration (12h, 30d), or a time (RFC 3339); default: no expiry")
	f.Uint32Var(&actor, "actor", 0, "a token of the Hero coordinator, for the actor of this number")
	offer(c, "role", []string{string(access.Viewer), string(access.Operator), string(access.Admin)})
	return c
}

// expiresFlag is a future time, or a duration until then, in whole seconds as in the file.
func expiresFlag(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		d, wrong := manifests.ParseDuration(text)
		if wrong != nil {
			return at, usagef("--expires %s: want how long, such as 12h or 30d, or a time such as 2027-01-31T00:00:00Z", text)
		}
		at = now.Add(d)
	}
	if at = at.UTC().Truncate(time.Second); !at.After(now) || at.Year() > 9999 {
		return at, usagef("--expires %s: want a time to come", text)
	}
	return at, nil
}

// ofActor makes a token for an actor of the Hero coordinator, whose file has another
// format.
func (b *tokenBook) ofActor(cmd *cobra.Command, actor uint32) error {
	for _, flag := range []string{"name", "role", "tenants", "certificate", "expires"} {
		if cmd.Flags().Changed(flag) {
			return usagef("--%s: a token of an actor has none: its rights are those of the actor", flag)
		}
	}
	if actor == 0 {
		return usagef("--actor 0: want the number of an actor")
	}
	token := access.NewToken()
	fmt.Fprintf(b.term.err, "add this line to the file of hero.api.tokens:\n%s %d\n", access.Hash(token), actor)
	fmt.Fprintln(b.term.out, token)
	return nil
}

func (b *tokenBook) add(e access.Entry) error {
	token := ""
	if e.Certificate == "" {
		token = access.NewToken()
		e.Hash = access.Hash(token)
	}
	if err := b.write(e); err != nil {
		return err
	}
	if token != "" {
		fmt.Fprintln(b.term.out, token)
	}
	return nil
}

// write adds the line to the file, or prints it.
func (b *tokenBook) write(e access.Entry) error {
	path := b.path()
	if path == "" {
		if _, err := access.Add(nil, e); err != nil {
			return notAdded("", err)
		}
		fmt.Fprint(b.term.err, "add this line to the file of tokens:\n"+e.Line())
		return nil
	}
	text, err := files.Read(path, files.Most)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("tokens: %w", err)
	}
	next, err := access.Add(text, e)
	if err != nil {
		return notAdded(path, err)
	}
	if err := replaceFile(path, next); err != nil {
		return err
	}
	fmt.Fprintf(b.term.err, "%s is in %s; a running Edda takes it in with edda reload\n", e.Name, path)
	return nil
}

// notAdded names the flag to change after a refused entry.
func notAdded(path string, err error) error {
	if field, ok := errors.AsType[*access.FieldError](err); ok {
		return usagef("--%w", field)
	}
	if taken, ok := errors.AsType[*access.TakenError](err); ok {
		return usagef("%s: %[2]s has this %[3]s already: choose another --%[3]s, or take that one out with edda token revoke %[2]s", path, taken.Name, taken.Field)
	}
	return usagef("%s: %w", path, err)
}

func (b *tokenBook) path() string { return cmp.Or(b.file, b.term.getenv(envTokens)) }

func (b *tokenBook) read() ([]byte, error) {
	if b.path() == "" {
		return nil, usagef("name the file with --tokens or %s", envTokens)
	}
	text, err := files.Read(b.path(), files.Most)
	if err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	return text, nil
}

func (b *tokenBook) list() *cobra.Command {
	var output outputFlag
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List tokens", Args: args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			text, err := b.read()
			if err != nil {
				return err
			}
			book, err := access.Parse(text)
			if err != nil {
				return fmt.Errorf("%s: %w", b.path(), err)
			}
			raw, err := json.Marshal(book.Entries())
			if err != nil {
				return fmt.Errorf("print tokens: %w", err)
			}
			return tokens().print(b.term, output, raw, book.Entries())
		},
	}
	output.register(c)
	return c
}

func tokens() listing[access.Entry] {
	return listing[access.Entry]{
		id: func(e access.Entry) string { return e.Name },
		columns: []column[access.Entry]{
			{"name", func(e access.Entry) string { return e.Name }},
			{"role", func(e access.Entry) string { return string(e.Role) }},
			{"tenants", func(e access.Entry) string { return strings.Join(e.Tenants, ",") }},
			{"shows", func(e access.Entry) string { return cmp.Or(e.Certificate, "a token") }},
			{"expires", func(e access.Entry) string { return expiry(e, time.Now()) }},
		},
	}
}

// expiry describes when an entry expires.
func expiry(e access.Entry, now time.Time) string {
	switch {
	case e.Expires.IsZero():
		return "never"
	case now.Before(e.Expires):
		return edda.FormatTime(e.Expires)
	}
	return "expired " + edda.FormatTime(e.Expires)
}

func (b *tokenBook) revoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke NAME", Aliases: []string{"rm"}, Short: "Remove a token from the file", Args: args(cobra.ExactArgs(1)), ValidArgsFunction: first(b.completeNames),
		RunE: func(_ *cobra.Command, names []string) error {
			text, err := b.read()
			if err != nil {
				return err
			}
			next, err := access.Remove(text, names[0])
			if err != nil {
				return fmt.Errorf("%s: %w", b.path(), err)
			}
			if err := replaceFile(b.path(), next); err != nil {
				return err
			}
			fmt.Fprintf(b.term.err, "%s is out of %s; a running Edda lets it in until edda reload\n", names[0], b.path())
			return nil
		},
	}
}

// replaceFile replaces a file atomically. A new file has mode 0600; a symbolic link stays.
func replaceFile(path string, text []byte) error {
	mode := fs.FileMode(0o600)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	next, err := os.CreateTemp(filepath.Dir(path), ".edda-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(next.Name())
	_, err = next.Write(text)
	if err := errors.Join(err, next.Chmod(mode), next.Sync(), next.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(next.Name(), path)
}
