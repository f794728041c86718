package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"edda/manifests"
)

func (t *terminal) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of manifests, for editors",
		Example: "  edda schema > edda.schema.json\n  # then, on the first line of a manifest:\n  # yaml-language-server: $schema=edda.schema.json",
		Args:    args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			text, err := manifests.Schema()
			if err != nil {
				return fmt.Errorf("schema: %w", err)
			}
			_, err = t.out.Write(text)
			return err
		},
	}
}
