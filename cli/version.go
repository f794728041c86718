package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"edda/server"
)

// build describes this program.
func (t *terminal) build() server.Build {
	b := server.Build{Version: t.version, Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Commit = s.Value
		}
	}
	return b
}

func versionLine(b server.Build) string { return fmt.Sprintf("edda %s (%s)\n", b.Version, b.Go) }

func (t *terminal) versionCommand() *cobra.Command {
	var output outputFlag
	c := &cobra.Command{
		Use: "version", Short: "Say which program this is", Args: args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			b := t.build()
			if output == outputJSON {
				return json.NewEncoder(t.out).Encode(b)
			}
			_, err := io.WriteString(t.out, versionLine(b))
			return err
		},
	}
	output.register(c)
	return c
}
