//go:build !race

package deploy

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers its packager
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers its packager
	rpmutils "github.com/sassoftware/go-rpmutils"
	"go.yaml.in/yaml/v4"
)

// build builds a package of a version, in dir.
func build(t *testing.T, dir, kind, of string) string {
	t.Helper()
	completions := t.TempDir()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		out, err := exec.Command(edda(), "completion", shell).Output()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(completions, "edda."+shell), out, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	vars := map[string]string{"ARCH": "amd64", "VERSION": of, "BINARY": edda(), "COMPLETIONS": completions, "MAN": manPages(t)}
	config, err := nfpm.ParseWithEnvMapping(strings.NewReader(read(t, "deploy/package/nfpm.yaml")), func(name string) string { return vars[name] })
	if err != nil {
		t.Fatal(err)
	}
	info, err := config.Get(kind)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range info.Contents { // paths of the file are those of the repository
		if c.Source != "" && !filepath.IsAbs(c.Source) {
			c.Source = filepath.Join(root, c.Source)
		}
	}
	for _, s := range []*string{&info.Scripts.PostInstall, &info.Scripts.PreRemove, &info.Scripts.PostRemove} {
		*s = filepath.Join(root, *s)
	}
	// The test is not about compression, which costs seconds.
	info.Deb.Compression, info.RPM.Compression = "gzip:1", "gzip:1"
	if kind == "deb" {
		info.Deb.Compression = "none"
	}
	info = nfpm.WithDefaults(info)
	packager, err := nfpm.Get(kind)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, packager.ConventionalFileName(info))
	var b bytes.Buffer
	if err := packager.Package(info, &b); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// manPages writes the manual pages, as make packages does.
func manPages(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("go", "run", "-C", root, "./cmd/edda-man", "--version", version, "--date", "1767225600", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// installed are the paths that a package must have.
func installed() []string {
	return []string{
		"/usr/bin/edda", "/usr/lib/systemd/system/edda.service", "/usr/lib/sysusers.d/edda.conf", "/etc/edda/edda.yaml",
		"/etc/edda/manifests", "/etc/edda/private", "/usr/share/doc/edda/copyright", "/usr/share/bash-completion/completions/edda",
		"/usr/share/zsh/vendor-completions/_edda", "/usr/share/fish/vendor_completions.d/edda.fish",
		"/usr/share/man/man1/edda.1.gz", "/usr/share/man/man1/edda-hero-flow-create.1.gz",
	}
}

// The package is installed, upgraded, removed and purged in a root of its own.
func TestTheDebianPackageKeepsWhatIsTheOperators(t *testing.T) {
	t.Parallel()
	dir, other := t.TempDir(), t.TempDir()
	path := build(t, dir, "deb", version)
	if name := filepath.Base(path); name != "edda_1.2.3~rc.1_amd64.deb" {
		t.Errorf("the package is called %s: a candidate must be older than its release", name)
	}
	if _, err := exec.LookPath("dpkg"); err != nil || os.Geteuid() != 0 {
		return // only root can install it; the test of the RPM reads the files of both
	}
	for _, sub := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/edda", "etc", "usr/sbin"} {
		if err := os.MkdirAll(filepath.Join(other, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"var/lib/dpkg/status", "var/lib/edda/edda.db"} {
		if err := os.WriteFile(filepath.Join(other, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dpkg := func(args ...string) {
		t.Helper()
		args = append([]string{"--root=" + other, "--force-script-chrootless", "--force-architecture", "--force-confold", "--log=/dev/null"}, args...)
		if out, err := exec.Command("dpkg", args...).CombinedOutput(); err != nil {
			t.Fatalf("dpkg %v: %v\n%s", args, err, out)
		}
	}
	there := func(path string) bool {
		_, err := os.Lstat(filepath.Join(other, path))
		return err == nil
	}
	dpkg("--install", path)
	for _, p := range installed() {
		if !there(p) {
			t.Errorf("the package lacks %s", p)
		}
	}
	if _, err := exec.LookPath("man"); err == nil {
		for _, name := range []string{"edda", "edda-replay"} {
			page := exec.Command("man", "--warnings", "--local-file", filepath.Join(other, "usr/share/man/man1", name+".1.gz"))
			page.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANPAGER=cat", "MANWIDTH=80")
			if out, err := page.CombinedOutput(); err != nil || !strings.Contains(string(out), name+" - ") || strings.Contains(string(out), "warning") {
				t.Errorf("man %s: %v\n%s", name, err, out)
			}
		}
	}
	if out, err := exec.Command(filepath.Join(other, "usr/bin/edda"), "version").Output(); err != nil || !strings.Contains(string(out), version) {
		t.Errorf("the installed binary says %s: %v", out, err)
	}
	if _, err := exec.LookPath("systemd-sysusers"); err == nil {
		if users, err := os.ReadFile(filepath.Join(other, "etc/passwd")); err != nil || !strings.Contains(string(users), "\nedda:") && !strings.HasPrefix(string(users), "edda:") {
			t.Errorf("the users are %q: %v", users, err)
		}
	}
	settings := filepath.Join(other, "etc/edda/edda.yaml")
	if out, err := exec.Command(edda(), "config", "view", "--config", settings).CombinedOutput(); err != nil {
		t.Errorf("the settings of the package: %v\n%s", err, out)
	}
	mine := read(t, "deploy/package/edda.yaml") + "log: {level: debug}\n"
	if err := os.WriteFile(settings, []byte(mine), 0o600); err != nil {
		t.Fatal(err)
	}
	dpkg("--install", build(t, dir, "deb", "1.2.3"))
	if text, err := os.ReadFile(settings); err != nil || string(text) != mine {
		t.Errorf("the upgrade changed the settings: %v\n%s", err, text)
	}
	dpkg("--remove", "edda")
	if there("/usr/bin/edda") || !there("/etc/edda/edda.yaml") {
		t.Error("the removal left the binary, or took the settings")
	}
	dpkg("--purge", "edda")
	if there("/etc/edda/edda.yaml") || !there("/var/lib/edda/edda.db") {
		t.Error("the purge left the settings, or took the store")
	}
}

func TestTheRPMHasTheSameFiles(t *testing.T) {
	t.Parallel()
	f, err := os.Open(build(t, t.TempDir(), "rpm", version))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	rpm, err := rpmutils.ReadRpm(f)
	if err != nil {
		t.Fatal(err)
	}
	files, err := rpm.Header.GetFiles()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		names = append(names, file.Name())
		// %config(noreplace): what the operator wrote stays.
		if file.Name() == "/etc/edda/edda.yaml" && file.Flags()&(rpmutils.RPMFILE_CONFIG|rpmutils.RPMFILE_NOREPLACE) != rpmutils.RPMFILE_CONFIG|rpmutils.RPMFILE_NOREPLACE {
			t.Errorf("an upgrade would replace %s: its flags are %#x", file.Name(), file.Flags())
		}
	}
	for _, p := range installed() {
		if !slices.Contains(names, p) {
			t.Errorf("the package lacks %s: it has %v", p, names)
		}
	}
	payload, err := rpm.PayloadReaderExtended()
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		if _, err := payload.Next(); err == io.EOF {
			if n < len(installed()) {
				t.Errorf("the payload has %d files", n)
			}
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// release is what the test reads of .goreleaser.yaml.
type release struct {
	Version int
	Before  struct{ Hooks []string }
	Builds  []struct {
		Main, Binary string
		Env          []string
		Flags        []string
		Ldflags      []string
		Goos, Goarch []string
	}
	Archives []struct{ Files []archived }
	Checksum struct {
		Extra []struct{ Glob string } `yaml:"extra_files"`
	}
}

// archived is a pattern of files in an archive, with or without another folder there.
type archived struct{ Src, Dst string }

func (a *archived) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return n.Decode(&a.Src)
	}
	type plain archived
	return n.Decode((*plain)(a))
}

func TestAReleaseBuildsWhatTheMakefileBuilds(t *testing.T) {
	t.Parallel()
	var r release
	if err := yaml.Unmarshal([]byte(read(t, ".goreleaser.yaml")), &r); err != nil {
		t.Fatal(err)
	}
	if r.Version != 2 || len(r.Builds) != 1 || len(r.Archives) != 1 {
		t.Fatalf("the release is %+v", r)
	}
	b := r.Builds[0]
	if b.Main != "./cmd/edda" || !slices.Equal(b.Goos, []string{"linux"}) || !slices.Equal(b.Goarch, []string{"amd64", "arm64"}) {
		t.Errorf("it builds %+v", b)
	}
	makefile := read(t, "Makefile")
	for _, flags := range []string{strings.NewReplacer("{{ .Version }}", "$(VERSION)").Replace(b.Ldflags[0]), strings.Replace(b.Env[0], "=", " = ", 1)} {
		if !strings.Contains(makefile, flags) {
			t.Errorf("the Makefile does not build with %q", flags)
		}
	}
	if !slices.ContainsFunc(r.Before.Hooks, func(h string) bool { return strings.HasPrefix(h, "make packages ") }) || !strings.Contains(makefile, "\npackages: ") {
		t.Error("the release does not build the packages")
	}
	for _, f := range r.Archives[0].Files {
		if made, found := strings.CutPrefix(f.Src, "bin/"); found { // make packages writes it there
			if dir := filepath.Dir(made); !strings.Contains(makefile, "$(BIN)/"+dir) || f.Dst != dir {
				t.Errorf("the archive has %s in %s, and the Makefile does not write it", f.Src, f.Dst)
			}
			continue
		}
		if found, err := filepath.Glob(filepath.Join(root, f.Src)); err != nil || len(found) == 0 {
			t.Errorf("%s is in the archive, and nothing is called so: %v", f.Src, err)
		}
	}
}
