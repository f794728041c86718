package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"edda"
	"edda/effects"
)

// natsPage returns docs/NATS.md.
func natsPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/NATS.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// pageSection returns a section of the page without its heading, up to the next heading.
func pageSection(t *testing.T, page, heading string) string {
	t.Helper()
	_, text, found := strings.Cut(page, "\n"+heading+"\n")
	if !found {
		t.Fatalf("the page has no section %q", heading)
	}
	return regexp.MustCompile(`(?m)^##+ `).Split(text, 2)[0]
}

// rows returns the cells of the table whose head begins with the given text.
func rows(t *testing.T, text, head string) (out [][]string) {
	t.Helper()
	_, table, found := strings.Cut(text, "\n"+head)
	if !found {
		t.Fatalf("there is no table %q", head)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "| ") {
			continue // the rest of the head, and the line under it
		}
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		out = append(out, cells)
	}
	if len(out) < 2 {
		t.Fatalf("the table %q has %d rows", head, len(out))
	}
	return out
}

var inBackticks = regexp.MustCompile("`([^`\n]+)`")

// quoted returns what a cell has in backticks.
func quoted(cell string) (out []string) {
	for _, m := range inBackticks.FindAllStringSubmatch(cell, -1) {
		out = append(out, m[1])
	}
	return out
}

// shown is a message of the page, and the text behind it on one line.
type shown struct {
	Message
	says string
}

var fence = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$")

// shownMessages returns the message blocks of the page and its nats pub lines.
func shownMessages(t *testing.T, page string) (out []shown) {
	t.Helper()
	places := fence.FindAllStringSubmatchIndex(page, -1)
	for _, at := range places {
		info, text := page[at[2]:at[3]], page[at[4]:at[5]]
		behind, _, _ := strings.Cut(strings.TrimLeft(page[at[1]:], "\n"), "\n\n")
		says := strings.Join(strings.Fields(behind), " ")
		switch info {
		case "text message":
			out = append(out, shown{shownBlock(t, text), says})
		case "sh":
			if line, _, _ := strings.Cut(text, "\n"); strings.HasPrefix(line, "nats pub ") {
				out = append(out, shown{shownCommand(t, line), says})
			}
		}
	}
	return out
}

func shownBlock(t *testing.T, text string) Message {
	t.Helper()
	head, body, found := strings.Cut(text, "\n\n")
	if !found {
		t.Fatalf("a block has no empty line between its head and its body:\n%s", text)
	}
	lines := strings.Split(head, "\n")
	m := Message{Subject: lines[0], Header: nats.Header{}, Data: []byte(body), Seq: 1, Time: noon}
	for _, line := range lines[1:] {
		name, value, found := strings.Cut(line, ": ")
		if !found {
			t.Fatalf("%q is no header", line)
		}
		m.Header[name] = []string{value}
	}
	return m
}

// shownCommand reads a line "nats pub -J -H name:value … SUBJECT 'BODY'".
func shownCommand(t *testing.T, line string) Message {
	t.Helper()
	line, body, _ := strings.Cut(strings.TrimSuffix(line, "'"), " '")
	words := strings.Fields(line)
	if len(words) < 4 || !slices.Equal(words[:3], []string{"nats", "pub", "-J"}) {
		t.Fatalf("want nats pub -J … SUBJECT 'BODY', not %q", line)
	}
	m := Message{Header: nats.Header{}, Data: []byte(body), Seq: 1, Time: noon}
	for words = words[3:]; len(words) > 2 && words[0] == "-H"; words = words[2:] {
		name, value, _ := strings.Cut(words[1], ":")
		m.Header[name] = []string{value}
	}
	if len(words) != 1 {
		t.Fatalf("%q has %d words where its subject is expected", line, len(words))
	}
	m.Subject = words[0]
	return m
}

// streamOf returns the stream of a family's messages.
func streamOf(f Family) string {
	switch f {
	case FamilyAggregate:
		return AggregateEvents
	case FamilyEffect, FamilyWorkflow, FamilyCommand:
		return WorkflowCommands
	}
	return WorkflowEvents
}

// readAs says what a message is read as, as the page does.
func readAs(t *testing.T, m Message) string {
	t.Helper()
	s, err := Grammar{}.Parse(m.Subject)
	if err != nil {
		t.Error(err)
	}
	m.Stream = streamOf(s.Family)
	switch s.Family {
	case FamilyEffect:
		return commandRead(t, Codec{}.Command(m))
	case FamilyCommand:
		return commandAsked(t, m)
	}
	var read []string
	for _, one := range (Codec{}).Split(m) {
		read = append(read, eventRead(t, Codec{}.Event(one)))
	}
	return strings.Join(read, " ")
}

func commandRead(t *testing.T, c effects.Command) string {
	t.Helper()
	if c.Malformed != "" {
		t.Errorf("the command is malformed: %s", c.Malformed)
	}
	if c.Revoke {
		return fmt.Sprintf("Read as the revocation of the command `%s` of the effect `%s`.", c.ID, c.Effect)
	}
	return fmt.Sprintf("Read as the command `%s` of the effect `%s`, not after `%s`.", c.ID, c.Effect, c.NotAfter.Format(time.RFC3339))
}

func commandAsked(t *testing.T, m Message) string {
	t.Helper()
	if isCloudEvent(m) {
		ce, err := readCloudEvent(m)
		if err != nil {
			t.Error(err)
		}
		aggregate, name, _ := strings.Cut(ce.Type(), ".")
		return fmt.Sprintf("Asks `%s` `%s` to `%s`, command `%s`.", aggregate, ce.Subject(), name, ce.ID())
	}
	var c aggregateCommand
	var inner struct{ Command string }
	if err := unmarshal(m.Data, &c); err != nil {
		t.Error(err)
	}
	if err := json.Unmarshal([]byte(c.PayloadJSON), &inner); err != nil {
		t.Error(err)
	}
	return fmt.Sprintf("Asks `%s` `%s` to `%s`, command `%s`.", c.AggregateType, c.AggregateID, inner.Command, c.CommandID)
}

func eventRead(t *testing.T, ev edda.Event) string {
	t.Helper()
	if ev.Malformed != "" {
		t.Errorf("the event is malformed: %s", ev.Error)
	}
	var out string
	switch ev.Kind {
	case edda.KindSignal:
		out = fmt.Sprintf("Read as the signal `%s` to `%s` `%s`, id `%s`", ev.Type, ev.Key.Saga, ev.Key.Correlation, ev.ID)
	case edda.KindAnswer:
		out = fmt.Sprintf("Read as the answer `%s` to the ask `%s` of `%s` `%s`, id `%s`", ev.Type, ev.Step, ev.Key.Saga, ev.Key.Correlation, ev.ID)
	case edda.KindResult:
		out = fmt.Sprintf("Read as the result `%s` of the effect `%s`, command `%s`, id `%s`", ev.Outcome, ev.Type, ev.CommandID, ev.ID)
	default:
		out = fmt.Sprintf("Read as the event `%s` of `%s` `%s`, id `%s`", ev.Type, ev.AggregateType, ev.AggregateID, ev.ID)
	}
	version := ""
	if ev.Version > 0 {
		version = strconv.Itoa(ev.Version)
	}
	for _, more := range [][2]string{
		{"version", version}, {"correlation", ev.Correlation}, {"causation", ev.Causation}, {"trace", ev.Trace}, {"by", ev.By},
	} {
		if more[1] != "" {
			out += fmt.Sprintf(", %s `%s`", more[0], more[1])
		}
	}
	if ev.Kind == edda.KindResult {
		out += fmt.Sprintf(", to `%s` `%s`", ev.Key.Saga, ev.Key.Correlation)
	}
	return out + "."
}

func TestTheNATSPageShowsMessagesAsTheyAreRead(t *testing.T) {
	families := map[Family]int{}
	for _, m := range shownMessages(t, natsPage(t)) {
		t.Run(m.Subject, func(t *testing.T) {
			if want := readAs(t, m.Message); m.says != want {
				t.Errorf("the page says\n%s\nwant\n%s", m.says, want)
			}
			s, err := Grammar{}.Parse(m.Subject)
			if err != nil {
				t.Fatal(err)
			}
			families[s.Family]++
			onlyKnownFields(t, s.Family, m.Message)
		})
	}
	for _, f := range []Family{FamilyAggregate, FamilyEffect, FamilyWorkflow, FamilyCommand, FamilyResult, FamilyFact} {
		if families[f] == 0 {
			t.Errorf("the page shows no message of the family %s", f)
		}
	}
}

// onlyKnownFields checks that a shown body has no field that is ignored.
func onlyKnownFields(t *testing.T, f Family, m Message) {
	t.Helper()
	if isCloudEvent(m) || bytes.Contains(m.Data, []byte(`"specversion"`)) {
		return
	}
	body := map[Family]any{
		FamilyAggregate: &envelope{}, FamilyFact: &envelope{}, FamilyWorkflow: &input{}, FamilyEffect: &command{},
		FamilyCommand: &aggregateCommand{}, FamilyResult: &result{},
	}[f]
	strict := func(data []byte, v any) {
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		if err := d.Decode(v); err != nil {
			t.Errorf("%v in %s", err, data)
		}
	}
	strict(m.Data, body)
	var has struct{ Metadata json.RawMessage }
	if err := json.Unmarshal(m.Data, &has); err != nil {
		t.Error(err)
	}
	if len(has.Metadata) > 0 {
		strict(has.Metadata, &metadata{})
	}
}

// TestTheNATSPageShowsMessagesAsTheyAreWritten compares what Edda itself writes, to the byte.
func TestTheNATSPageShowsMessagesAsTheyAreWritten(t *testing.T) {
	const id = "0192a1b2-0000-7000-8000-00000000000"
	begin := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	from := edda.Key{Tenant: "default", Saga: "order", Correlation: "O1"}
	written := []edda.Work{
		{ID: id + "1", Kind: edda.WorkCommand, From: from, Name: "Payment.Request", To: "O1", Step: "pay", Correlation: "O1", Causation: "order-O1-placed",
			Payload: json.RawMessage(`{"amount":20,"customer":"C1"}`), Time: begin},
		{ID: id + "2", Kind: edda.WorkEffect, From: from, Name: "reserve_stock", Step: "reserve_stock", Attempt: 1, IdempotencyKey: id + "2",
			Payload: json.RawMessage(`{"items":[{"price":10,"qty":2,"sku":"a"}],"order":"O1"}`), Time: begin, NotAfter: begin.Add(24 * time.Hour),
			Correlation: "O1", Causation: "payment-P1"},
		{ID: id + "3", Kind: edda.WorkRevoke, From: from, Name: "reserve_stock", Step: "reserve_stock", CommandID: id + "2", Time: begin.Add(5 * time.Minute),
			Correlation: "O1", Causation: "cancel-1"},
		{ID: id + "4", Kind: edda.WorkFact, From: from, Name: "OrderClosed", Payload: json.RawMessage(`{"total":20}`), Time: begin.Add(time.Second),
			Correlation: "O1", Causation: "payment-P1"},
	}
	all := shownMessages(t, natsPage(t))
	for _, i := range []int{3, 0} { // as CloudEvents
		w := written[i]
		w.ID = id + strconv.Itoa(len(written)+1)
		written = append(written, w)
	}
	for i, w := range written {
		codec := Codec{}
		if i >= 4 {
			codec = asCloudEvents
		}
		want, err := codec.Work(w)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(all, func(m shown) bool { return slices.Equal(m.Header[headerMsgID], want.Header[headerMsgID]) })
		if i < 0 {
			t.Errorf("the page has no message with the id of the %s", w.Kind)
			continue
		}
		var got bytes.Buffer
		if err := json.Compact(&got, all[i].Data); err != nil {
			t.Error(err)
		}
		if all[i].Subject != want.Subject || got.String() != string(want.Data) {
			t.Errorf("the page shows the %s as\n%s\n%s\nwant\n%s\n%s", w.Kind, all[i].Subject, &got, want.Subject, want.Data)
		}
	}
}

func TestTheNATSPageHasEveryField(t *testing.T) {
	page := natsPage(t)
	for heading, v := range map[string]any{
		"### Envelope of an event": envelope{}, "## Metadata": metadata{}, "## Aggregate commands": aggregateCommand{},
		"### Command of an effect": command{}, "### Result": result{}, "## Signals and answers": input{},
	} {
		var want, got []string
		for field := range reflect.TypeOf(v).Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			want = append(want, name)
		}
		for _, row := range rows(t, pageSection(t, page, heading), "| field | ") {
			got = append(got, quoted(row[0])...)
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the table has the fields %v, want %v", heading, got, want)
		}
	}
}

func TestTheNATSPageHasEveryHeader(t *testing.T) {
	text := pageSection(t, natsPage(t), "## Headers")
	var listed []string
	for _, row := range rows(t, text, "| header | ") {
		listed = append(listed, quoted(row[0])...)
	}
	want := headerConstants(t)
	if len(want) < 4 {
		t.Fatalf("the package has only the headers %v", want)
	}
	want = append(want, cePrefix+"<attribute>")
	slices.Sort(want)
	if slices.Sort(listed); !slices.Equal(listed, want) {
		t.Errorf("the table has the headers %v, want %v", listed, want)
	}
}

// headerConstants returns the values of the package's constants whose name begins with header.
func headerConstants(t *testing.T) (out []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, is := n.(*ast.ValueSpec)
			if !is || !strings.HasPrefix(spec.Names[0].Name, "header") || len(spec.Values) == 0 {
				return true
			}
			if lit, is := spec.Values[0].(*ast.BasicLit); is {
				value, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Error(err)
				}
				out = append(out, value)
			}
			return true
		})
	}
	return out
}

var (
	placeholder = regexp.MustCompile(`<[^>]*>|\*`)
	subjectForm = regexp.MustCompile(`^(tenant\.\S+|(aggregate|workflow|effect|command|effect_result|workflow_event)\.<\S+)$`)
)

func TestTheNATSPageHasSubjectsOfTheGrammar(t *testing.T) {
	page := natsPage(t)
	wrong, _, _ := strings.Cut(page[strings.Index(page, "## What goes wrong"):], "**It is stored") // shows what is not stored
	page = strings.Replace(page, wrong, "", 1)
	families, forms := map[Family]bool{}, 0
	for _, m := range inBackticks.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		if !subjectForm.MatchString(m[1]) || m[1] == "tenant.<t>." || m[1] == (Grammar{}).All(FamilyUnescaped) {
			continue
		}
		forms++
		subject := placeholder.ReplaceAllString(m[1], "x")
		if strings.HasSuffix(subject, ".>") {
			subject = strings.TrimSuffix(subject, ">") + "x.x"
		}
		s, err := Grammar{NoTenancy: !strings.HasPrefix(subject, "tenant.")}.Parse(subject)
		if err != nil {
			t.Errorf("%s is no subject: %v", m[1], err)
		}
		families[s.Family] = true
	}
	for _, f := range []Family{FamilyAggregate, FamilyEffect, FamilyWorkflow, FamilyCommand, FamilyResult, FamilyFact, FamilyEcho} {
		if !families[f] {
			t.Errorf("the page names no subject of the family %s", f)
		}
	}
	if forms < 20 {
		t.Errorf("the page has only %d subjects", forms)
	}
	for _, row := range rows(t, wrong, "| subject | cause |") {
		for _, subject := range quoted(row[0]) {
			s, err := Grammar{}.Parse(placeholder.ReplaceAllString(subject, "x"))
			if err == nil && s.Family == FamilyAggregate {
				t.Errorf("%s is said to be stored nowhere, and is a subject", subject)
			}
		}
	}
}

func TestTheNATSPageEscapesNamesAsSubjectsDo(t *testing.T) {
	for _, row := range rows(t, pageSection(t, natsPage(t), "## Names in subjects"), "| text | token |") {
		text := strings.Join(quoted(row[0]), "")
		if token := quoted(row[1])[0]; escape(text) != token || unescape(token) != text {
			t.Errorf("%q is escaped as %q, the page has %q", text, escape(text), token)
		}
	}
}

func TestTheNATSPageNamesCloudEventsAsTheyAreRead(t *testing.T) {
	page := natsPage(t)
	for _, row := range rows(t, pageSection(t, page, "### Type and event name"), "| `type` | event |") {
		name, version := edda.ShortType(quoted(row[0])[0])
		if got := []string{quoted(row[1])[0], quoted(row[2])[0]}; got[0] != name || got[1] != strconv.Itoa(version) {
			t.Errorf("%s is read as %s, version %d, the page has %v", row[0], name, version, got)
		}
	}
	attributes := pageSection(t, page, "### Attributes")
	var listed []string
	for _, head := range []string{"| attribute | ", "| extension | "} {
		for _, row := range rows(t, attributes, head) {
			listed = append(listed, quoted(row[0])...)
		}
	}
	want := append([]string{"specversion", "type", "source", "id", "time", "datacontenttype", "dataschema", "subject"}, extensions...)
	if !slices.Equal(slices.Sorted(slices.Values(listed)), slices.Sorted(slices.Values(want))) {
		t.Errorf("the tables have the attributes %v, want %v", listed, want)
	}
}

// TestTheNATSPageListsTheErrorsOfMessages: each row of the table is the error of a message here, and
// the table has a row for the error of each.
func TestTheNATSPageListsTheErrorsOfMessages(t *testing.T) {
	const event, result, signal = "tenant.default.aggregate.Order.O1", "tenant.default.effect_result.ship.a", "tenant.default.workflow.order.O1"
	binary := []string{"ce-specversion", "1.0", "ce-id", "1", "ce-type", "T", "ce-source", "s"}
	wrong := []Message{
		message(event, `{"order_id": "O1"}`),
		message(event, `{"specversion": "1.0", "id": "1", "source": "s"}`),
		message("tenant.default.aggregate.Order.a.b", `{"event_type": "X"}`),
		message(signal, `{}`),
		message(event, ``),
		message(event, `hello`),
		message(event, `{"event_type": "X", "version": "2"}`),
		message(event, `null`),
		message(event, `{"specversion": "1.0", "id": "1", "source": "", "type": "T"}`),
		message(event, `{"specversion": "1.0", "id": "1", "source": "s", "type": "T", "time": "noon"}`),
		message(event, `{"specversion": "1.0", "source": "s", "type": "T"}`),
		message(event, `{"specversion": "0.3", "id": "1", "source": "s", "type": "T"}`),
		message(event, `{"specversion": "1.0", "id": "1", "source": "s", "type": "com.shop."}`),
		message(event, `<event/>`, headerContentType, ceStructured+"+xml"),
		message(event, `[]`, headerContentType, ceBatch+"+json"),
		message(event, `[]`, headerContentType, ceBatch+"+xml"),
		message(event, `{}`, headerContentType, ceBatch+"+json"),
		message(event, `null`, headerContentType, ceBatch+"+json"),
		message(event, "["+strings.Repeat("1,", MaxMembers)+"1]", headerContentType, ceBatch+"+json"),
		message(event, `1`, append(binary, headerContentType, "text/plain")...),
		message(event, `x`, binary...),
		message(event, `1`, append(binary, "ce-subject", "%C0%A0")...),
		message(signal, `{"kind": "answer", "name": "approve"}`),
		message(signal, `{"kind": "x", "name": "y"}`),
		message(result, `{"result_type": "ok"}`),
		message(result, `{"result_type": "Failed", "command_id": "b"}`),
		message("tenant.default.aggregate.Order."+shorten("O1"), `{"event_type": "X"}`),
		message(event, `{"event_type": "X", "tenant_id": "acme"}`),
		message(event, strings.Repeat("x", DefaultMaxPayload+1)),
	}
	listed := map[string]bool{} // reason and error, and whether a message has them
	for _, row := range rows(t, pageSection(t, natsPage(t), "## What goes wrong"), "| reason | error |") {
		listed[strings.Trim(row[0], "`")+" "+strings.TrimSuffix(strings.Trim(row[1], "`"), "…")] = false
	}
	for _, m := range wrong {
		ev, best, at := Codec{}.Event(m), "", -1
		for row := range listed {
			reason, text, _ := strings.Cut(row, " ")
			if i := strings.LastIndex(ev.Error, text); reason == ev.Malformed && i > at {
				best, at = row, i // the last, because a cause stands behind its context
			}
		}
		if best == "" {
			t.Errorf("the table lacks %s: %s", ev.Malformed, ev.Error)
			continue
		}
		listed[best] = true
	}
	for row, used := range listed {
		if !used {
			t.Errorf("no message has the error %s", row)
		}
	}
	inTables := map[string]bool{}
	for _, head := range []string{"| reason | error |", "| reason | cause |"} {
		for _, row := range rows(t, pageSection(t, natsPage(t), "## What goes wrong"), head) {
			inTables[quoted(row[0])[0]] = true
		}
	}
	want := slices.DeleteFunc(slices.Clone(edda.DeadReasons), func(r string) bool { return r == edda.DeadRejected }) // no publisher causes it
	if got := slices.Sorted(maps.Keys(inTables)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("the tables have the reasons %v, want %v", got, want)
	}
}
