package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"edda/manifests"
	"edda/manifests/patterns"
	"edda/node"
)

func (t *terminal) initCommand() *cobra.Command {
	name := ""
	var choice strings.Builder
	var words []string
	for _, p := range patterns.All() {
		fmt.Fprintf(&choice, "  %-13s %s\n", p.Name, p.Short)
		words = append(words, cobra.CompletionWithDesc(p.Name, p.Short))
	}
	c := &cobra.Command{
		Use: "init [DIR]", Short: "Write a first saga, with its effects, tests and configuration",
		Long: `Write a saga with its effects and tests into DIR/manifests (default: the working
directory), and DIR/edda.yaml, which shows every setting with its default. No file is
overwritten. The patterns are:

` + choice.String() + `
Without --pattern it asks; without a terminal it takes the first.`,
		Example: "  edda init shop\n  edda init --pattern approval expenses",
		Args:    args(cobra.MaximumNArgs(1)),
		ValidArgsFunction: first(func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		}),
		RunE: func(_ *cobra.Command, a []string) error {
			dir := here
			if len(a) > 0 {
				dir = a[0]
			}
			if err := isNew(filepath.Join(dir, manifests.ConfigFile)); err != nil { // before it asks
				return err
			}
			p, err := t.pattern(name)
			if err != nil {
				return err
			}
			return t.init(dir, p)
		},
	}
	c.Flags().StringVar(&name, "pattern", "", "one of "+strings.Join(patternNames(), ", "))
	offer(c, "pattern", words)
	return c
}

func patternNames() (out []string) {
	for _, p := range patterns.All() {
		out = append(out, p.Name)
	}
	return out
}

// pattern finds a pattern by its name. Without one it asks at a terminal, and takes the first
// elsewhere.
func (t *terminal) pattern(name string) (patterns.Pattern, error) {
	switch {
	case name == "" && isTerminal(t.in):
		return t.askPattern(t.in)
	case name == "":
		return patterns.All()[0], nil
	}
	return patternOf(name)
}

// askPattern has a person choose a pattern by its number or name.
func (t *terminal) askPattern(in io.Reader) (patterns.Pattern, error) {
	fmt.Fprintln(t.out, "Which pattern?")
	for i, p := range patterns.All() {
		fmt.Fprintf(t.out, "  %d  %-13s %s\n", i+1, p.Name, p.Short)
	}
	fmt.Fprintf(t.out, "Number or name [%s]: ", patterns.All()[0].Name)
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil {
		return patterns.Pattern{}, errors.New("nothing was chosen, and nothing written: name a pattern with --pattern")
	}
	line = strings.TrimSpace(line)
	for i, p := range patterns.All() {
		if line == strconv.Itoa(i+1) || line == "" && i == 0 {
			return p, nil
		}
	}
	return patternOf(line)
}

func patternOf(name string) (patterns.Pattern, error) {
	for _, p := range patterns.All() {
		if name == p.Name {
			return p, nil
		}
	}
	return patterns.Pattern{}, usagef("there is no pattern %q: want one of %s", name, strings.Join(patternNames(), ", "))
}

// init writes the files of a pattern, or none if one of them is there already.
func (t *terminal) init(dir string, p patterns.Pattern) error {
	config, err := node.Template(ownManifests)
	if err != nil {
		return err
	}
	list, err := p.Files()
	if err != nil {
		return err
	}
	for i := range list {
		list[i].Name = filepath.Join(ownManifests, list[i].Name)
	}
	list = append(list, patterns.Starter{Name: manifests.ConfigFile, Text: config})
	for i := range list {
		list[i].Name = filepath.Join(dir, list[i].Name)
		if err := isNew(list[i].Name); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, ownManifests), 0o755); err != nil {
		return fmt.Errorf("write the first files: %w", err)
	}
	for _, f := range list {
		if err := writeNew(f.Name, f.Text); err != nil {
			return fmt.Errorf("write the first files: %w", err)
		}
		fmt.Fprintln(t.out, "wrote "+f.Name)
	}
	return t.nextCommands(dir)
}

// isNew returns an error if there is a file of that name.
func isNew(name string) error {
	_, err := os.Lstat(name)
	switch {
	case err == nil:
		return fmt.Errorf("%s is there already, and nothing was written: name another folder, as in edda init DIR", name)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return fmt.Errorf("write the first files: %w", err)
}

// writeNew writes a file that is not there yet.
func writeNew(name string, text []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// nextCommands prints the commands that bring the saga's first test to its end.
func (t *terminal) nextCommands(dir string) error {
	key, inputs, err := node.Walkthrough(filepath.Join(dir, ownManifests))
	if err != nil {
		return err
	}
	fmt.Fprint(t.out, "\nRun it. No service is needed: --mock answers from the tests.\n\n  ")
	if dir != here {
		fmt.Fprint(t.out, "cd "+quote(dir)+" && ")
	}
	fmt.Fprint(t.out, "edda dev --mock\n\nThen, in another terminal:\n\n")
	for _, ev := range inputs {
		fmt.Fprintln(t.out, "  "+inputLine(ev, "", ""))
	}
	if len(inputs) == 1 {
		fmt.Fprintln(t.out, "  edda instance describe "+key.Saga+" "+quote(key.Correlation))
	}
	_, err = fmt.Fprintf(t.out, "\nEdit %s: dev reloads what you save. Check it with edda lint and edda test.\n", filepath.Join(dir, ownManifests))
	return err
}
