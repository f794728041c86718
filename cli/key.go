package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"edda/keyset"
)

// keysetVariable names the keyset for edda key, as it does for edda run.
const keysetVariable = "EDDA_ENCRYPTION_KEYSET"

func (t *terminal) keyCommand() *cobra.Command {
	path := ""
	noun := &cobra.Command{Use: "key", Short: "Create and rotate the keys that encrypt a store", Args: noun, RunE: help,
		Long: `Create and rotate the keys that encrypt the payloads in a store (edda run with
encryption.keyset). The newest key encrypts, all of them decrypt. Keep the file
apart from the store and its backups: they cannot be read without it.`}
	noun.PersistentFlags().StringVar(&path, "keyset", "", "the file ("+keysetVariable+")")
	verb := func(use, short, done string, do func(string) error) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Args: args(cobra.NoArgs), RunE: func(*cobra.Command, []string) error {
			if path == "" {
				path = t.getenv(keysetVariable)
			}
			if path == "" {
				return usagef("name the file with --keyset or %s", keysetVariable)
			}
			if err := do(path); err != nil {
				return err
			}
			fmt.Fprintf(t.err, done+"\n", path)
			return nil
		}}
	}
	noun.AddCommand(
		verb("create", "Create a keyset with one key", "%s is made; keep a copy of it in a safe place", keyset.Create),
		verb("rotate", "Add a key, which encrypts from the next start on", "%s has a new key, which encrypts from the next start on; the older ones stay, to decrypt", keyset.Rotate),
	)
	return noun
}
