package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"edda/manifests"
)

// The output formats of edda lint.
const (
	lintText  = "text"
	lintJSON  = "json"
	lintSARIF = "sarif"
)

func lintOutputs() []string { return []string{lintText, lintJSON, lintSARIF} }

// lintProblem is a problem as -o json prints it.
type lintProblem struct {
	File     string         `json:"file"`
	Line     int            `json:"line"`
	Column   int            `json:"column"`
	Severity string         `json:"severity"`
	Rule     manifests.Rule `json:"rule"`
	Message  string         `json:"message"`
}

func (t *terminal) printLint(problems manifests.Problems, output string) error {
	switch output {
	case lintJSON:
		return t.json(lintProblems(problems))
	case lintSARIF:
		return t.sarif(problems)
	}
	problems.Print(t.out, t.color(t.out))
	return nil
}

func lintProblems(problems manifests.Problems) []lintProblem {
	list := []lintProblem{}
	for _, p := range problems {
		list = append(list, lintProblem{fileOf(p), p.Pos.Line, p.Pos.Column, severity(p), p.RuleID(), p.Message})
	}
	return list
}

func fileOf(p manifests.Problem) string {
	if p.File == nil {
		return ""
	}
	return p.File.Name
}

func severity(p manifests.Problem) string {
	if p.Warning {
		return "warning"
	}
	return "error"
}

// The parts of SARIF 2.1.0 that a report has.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool       sarifTool     `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version,omitempty"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID    string       `json:"id"`
		Short sarifMessage `json:"shortDescription"`
		Full  sarifMessage `json:"fullDescription"`
		Help  sarifMessage `json:"help"`
	}
	sarifMessage struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID       string            `json:"ruleId"`
		RuleIndex    int               `json:"ruleIndex"`
		Level        string            `json:"level"`
		Message      sarifMessage      `json:"message"`
		Locations    []sarifLocation   `json:"locations,omitempty"`
		Fingerprints map[string]string `json:"partialFingerprints"`
	}
	sarifLocation struct {
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   sarifRegion   `json:"region"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn"`
	}
)

// sarif prints problems as SARIF 2.1.0, with every rule.
func (t *terminal) sarif(problems manifests.Problems) error {
	run := sarifRun{ColumnKind: "unicodeCodePoints", Results: []sarifResult{}}
	run.Tool.Driver = sarifDriver{Name: "edda", Version: t.version}
	index := map[manifests.Rule]int{}
	for i, r := range manifests.Rules() {
		index[r.Rule] = i
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{
			ID: string(r.Rule), Short: sarifMessage{r.Title}, Full: sarifMessage{r.Title + "."}, Help: sarifMessage{r.Help},
		})
	}
	for _, p := range problems {
		run.Results = append(run.Results, sarifResult{
			RuleID: string(p.RuleID()), RuleIndex: index[p.RuleID()], Level: severity(p), Message: sarifMessage{p.Message},
			Locations: locations(p), Fingerprints: map[string]string{"eddaProblem/v1": fingerprint(p)},
		})
	}
	raw, err := json.Marshal(sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}})
	if err != nil {
		return fmt.Errorf("write sarif: %w", err)
	}
	return indented(t.out, raw)
}

func locations(p manifests.Problem) []sarifLocation {
	if p.File == nil {
		return nil
	}
	return []sarifLocation{{sarifPhysical{
		Artifact: sarifArtifact{artifactURI(p.File.Name)},
		Region:   sarifRegion{StartLine: max(p.Pos.Line, 1), StartColumn: max(p.Pos.Column, 1)},
	}}}
}

// artifactURI is a path as a URI: relative as it is given, or of the scheme file.
func artifactURI(name string) string {
	u := url.URL{Path: filepath.ToSlash(filepath.Clean(name))}
	if filepath.IsAbs(name) {
		u.Scheme = "file"
	}
	return u.String()
}

// fingerprint recognises a problem after lines were added above it: by its file, rule, message, the
// text of its line and its place in that text.
func fingerprint(p manifests.Problem) string {
	line, place := "", p.Pos.Column
	if p.File != nil {
		if lines := strings.Split(string(p.File.Source), "\n"); p.Pos.Line >= 1 && p.Pos.Line <= len(lines) {
			line = strings.TrimLeft(lines[p.Pos.Line-1], " \t")
			place -= len(lines[p.Pos.Line-1]) - len(line)
			line = strings.TrimRight(line, " \t\r")
		}
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{fileOf(p), string(p.RuleID()), p.Message, line, strconv.Itoa(place)}, "\x00")))
	return hex.EncodeToString(sum[:16])
}
