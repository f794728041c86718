package cli

import (
	"cmp"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"edda/node"
)

// others lists variables with the prefix EDDA_ that are no settings.
func others() []string {
	return []string{envConfig, envURL, "EDDA_TENANT", "EDDA_REDIS", "EDDA_HERO_LOGS", envToken, envTokenFile, envCA, envCert, envKey}
}

// envConfig names the configuration file.
const envConfig = "EDDA_CONFIG"

// loadConfig merges the file, the environment and the given flags.
func (t *terminal) loadConfig(file string, flags *pflag.FlagSet) (node.Config, error) {
	return node.Load(node.Sources{File: cmp.Or(file, t.getenv(envConfig)), Environ: t.env, Flags: flags, Others: others()})
}

func (t *terminal) configCommand() *cobra.Command {
	var file string
	noun := &cobra.Command{Use: "config", Short: "Look at the configuration", Args: noun, RunE: help}
	view := &cobra.Command{
		Use: "view", Short: "Show what edda run would use, from file, environment and defaults", Args: args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			c, err := t.loadConfig(file, nil)
			if err != nil {
				return err
			}
			text, err := c.YAML()
			if err != nil {
				return err
			}
			_, err = t.out.Write(text)
			return err
		},
	}
	view.Flags().StringVar(&file, "config", "", "configuration file ("+envConfig+")")
	noun.AddCommand(view)
	return noun
}
