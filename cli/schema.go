package cli

import (
	"github.com/spf13/cobra"

	"edda/manifests"
)

func (t *terminal) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of manifests, for editors",
		Example: "  edda schema > edda.schema.json\n  # then, on the first line of a manifest:\n  # yaml-language-server: $schema=edda.schema.json",
		Args:    args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			_, err := t.out.Write(manifests.Schema())
			return err
		},
	}
}
