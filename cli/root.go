package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"edda/server"
)

// Commands returns the commands of a version, to write about them. Main runs them.
func Commands(version string) *cobra.Command {
	root := (&terminal{version: version}).root()
	root.InitDefaultCompletionCmd()
	return root
}

func (t *terminal) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "edda",
		Short: "Durable sagas over NATS JetStream",
		Long: `Edda runs sagas written in YAML over the events on your NATS JetStream, and
commits everything a step changes in one transaction.

Begin with:  edda init, then edda dev --mock`,
		SilenceErrors: true, SilenceUsage: true,
		Args: noun, RunE: help,
	}
	root.Version = t.version // adds --version
	root.SetVersionTemplate(versionLine(t.build()))
	root.SetIn(t.in)
	root.SetOut(t.out)
	root.SetErr(t.err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usagef("%w; see %s --help", err, c.CommandPath())
	})
	root.AddGroup(&cobra.Group{ID: "write", Title: "Write sagas:"}, &cobra.Group{ID: "run", Title: "Run them:"}, &cobra.Group{ID: "operate", Title: "Operate them:"})
	add(root, "write", t.initCommand(), t.fmtCommand(), t.lintCommand(), t.testCommand(), t.evalCommand(), t.graphCommand(), t.schemaCommand())
	add(root, "run", t.devCommand(), t.demoCommand(), t.mockCommand(), t.runCommand(), t.configCommand())
	add(root, "operate", t.sendCommand(), t.lsCommand(), t.instanceCommand(), t.deadLetterCommand(), t.auditCommand(), t.sourceCommand(), t.heroCommand(), t.clusterCommand(), t.healthCommand(), t.drainCommand(), t.reloadCommand(), t.completeReplay(t.replayCommand()),
		t.tokenCommand(), t.keyCommand(), t.gcCommand(), t.backupCommand(), t.restoreCommand(), t.doctorCommand(), t.compactCommand())
	root.AddCommand(t.versionCommand())
	return root
}

func add(root *cobra.Command, group string, commands ...*cobra.Command) {
	for _, c := range commands {
		c.GroupID = group
		root.AddCommand(c)
	}
}

// noun is the Args function of a command with subcommands only.
func noun(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %s", args[0], c.CommandPath())
	var near []string
	for d := 1; d <= min(2, len(args[0])-1) && len(near) == 0; d++ { // of two letters everything is near
		c.SuggestionsMinimumDistance = d
		near = c.SuggestionsFor(args[0])
	}
	if len(near) > 0 {
		text += fmt.Sprintf("; did you mean %s?", strings.Join(near, " or "))
	}
	return usagef("%s; see %s --help", text, c.CommandPath())
}

// help is the RunE function of a command with subcommands only.
func help(c *cobra.Command, _ []string) error { return c.Help() }

// args converts an argument error of cobra into a usage error with the command's usage.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, list []string) error {
		if err := check(c, list); err != nil {
			return usagef("%w; use it as: %s", err, c.UseLine())
		}
		return nil
	}
}

// getenv looks up a variable in the environment of the command.
func (t *terminal) getenv(name string) string {
	for _, line := range slices.Backward(t.env) {
		if value, ok := strings.CutPrefix(line, name+"="); ok {
			return value
		}
	}
	return ""
}

// color tells whether a stream is a terminal with colours.
func (t *terminal) color(w io.Writer) bool {
	return t.getenv("NO_COLOR") == "" && t.getenv("TERM") != "dumb" && isTerminal(w)
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

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
		Use: "version", Short: "Print the version and build of this program", Args: args(cobra.NoArgs),
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
