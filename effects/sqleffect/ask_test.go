package sqleffect

import (
	"fmt"
	"strings"
	"testing"

	"edda/internal/jsonvalue"
)

// TestACheckLeavesNoRow: it reads anew each time that it asks, and the command
// that it asks about is still to be done.
func TestACheckLeavesNoRow(t *testing.T) {
	onAll(t, func(t *testing.T, s side) {
		p := local(t)
		s.exec(t, "create table pays (id varchar(20))")
		ask := s.command("k", map[string]any{"query": "select id from pays"})
		ask.Asks = true
		for want := range 2 {
			r, err := p.Call(t.Context(), ask)
			if err != nil || r.Status != statusDone || len(r.Body.(map[string]any)["rows"].([]any)) != want {
				t.Fatalf("%d rows wanted, got %v %v", want, r, err)
			}
			s.must(t, p, statusDone, "k", map[string]any{"exec": "insert into pays (id) values (?)", "args": []any{"a"}})
		}
		if n := s.number(t, "select count(*) from pays"); n != 1 {
			t.Errorf("%d payments", n)
		}
		ask.Config["exec"] = "delete from pays"
		delete(ask.Config, "query")
		if _, err := p.Call(t.Context(), ask); err == nil || s.number(t, "select count(*) from pays") != 1 {
			t.Errorf("a check has changed something: %v", err)
		}
	})
}

// TestWhatIsNestedTooDeepIsNotCommitted: nobody could read the answer again.
func TestWhatIsNestedTooDeepIsNotCommitted(t *testing.T) {
	s := on(t, "sqlite")
	s.exec(t, "create table notes (note JSON)")
	nested := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	for _, deep := range []string{nested(jsonvalue.MaxDepth), nested(jsonvalue.MaxDepth + 1)} { // the row alone is too deep, too
		for _, readonly := range []bool{false, true} {
			query := "insert into notes values (?) returning note"
			if readonly {
				s.exec(t, "insert into notes values (?)", deep)
				query = "select note from notes where note = ?"
			}
			body := s.must(t, local(t), statusTooLarge, "k", map[string]any{"query": query, "args": []any{deep}, "readonly": readonly})
			if body["code"] != "too_large" {
				t.Errorf("%v", body)
			}
		}
	}
	if n := s.number(t, "select count(*) from notes"); n != 2 {
		t.Errorf("%d notes, and only the two of the test are wanted", n)
	}
}

func TestLintOfAnAskingStatement(t *testing.T) {
	for config, want := range map[string]string{
		"dsn: =secret.DB, query: select 1":                  "",
		"dsn: =secret.DB, query: select 1, readonly: true":  "",
		"dsn: =secret.DB, query: select 1, readonly: false": "a check only reads",
		"dsn: =secret.DB, exec: delete from t":              "a check only reads",
	} {
		_, problems := compile(t, "effect: pay\nsql: {dsn: =secret.DB, exec: delete from t}\ncheck: {sql: {"+config+"}, ok: status == 200}\n")
		if want == "" && problems.Failed() || want != "" && !strings.Contains(fmt.Sprint(problems), want) {
			t.Errorf("%s: %v, want %q", config, problems, want)
		}
	}
}
