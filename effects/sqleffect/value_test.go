package sqleffect

import (
	"encoding/json"
	"fmt"
	"testing"
)

// TestValuesComeOut reads every type of each database.
func TestValuesComeOut(t *testing.T) {
	tables := map[string][]struct{ sql, want string }{
		"postgres": {
			{"null::int", `null`}, {"7::smallint", `7`}, {"9223372036854775807::bigint", `9223372036854775807`},
			{"true", `true`}, {"0.1::real", `0.1`}, {"0.1::float8", `0.1`}, {"'NaN'::float8", `"NaN"`}, {"'-Infinity'::real", `"-Inf"`}, {"3::float8", `3`},
			{"12.50::numeric(10,2)", `"12.50"`}, {"123456789012345678901234567890.123456789::numeric", `"123456789012345678901234567890.123456789"`}, {"sum(1::bigint)", `"1"`},
			{"'ä€😀'::text", `"ä€😀"`}, {"'a'::char(3)", `"a  "`}, {"'\\x00ff'::bytea", `"AP8="`},
			{"'2026-01-02'::date", `"2026-01-02"`}, {"'2026-01-02 03:04:05.678901+02'::timestamptz", `"2026-01-02T01:04:05.678901Z"`},
			{"'2026-01-02 03:04:05'::timestamp", `"2026-01-02T03:04:05.000Z"`}, {"'infinity'::timestamptz", `"infinity"`}, {"'03:04:05'::time", `"03:04:05"`},
			{"'5b1a2c4e-0000-4000-8000-00000000000a'::uuid", `"5b1a2c4e-0000-4000-8000-00000000000a"`},
			{`'{"b":[1,2.5,null],"a":9007199254740993}'::jsonb`, `{"a":9007199254740993,"b":[1,2.5,null]}`}, {`'99999999999999999999'::json`, `99999999999999999999`}, {`'null'::json`, `null`},
			{"array[1,2]", `"{1,2}"`}, {"'1 day'::interval", `"1 day"`}, {"'10.0.0.1'::inet", `"10.0.0.1"`},
		},
		"mysql": {
			{"null", `null`}, {"cast(7 as signed)", `7`}, {"9223372036854775807", `9223372036854775807`}, {"cast(18446744073709551615 as unsigned)", `"18446744073709551615"`},
			{"true", `1`}, {"cast(0.1 as float)", `0.1`}, {"cast(0.1 as double)", `0.1`}, {"3e0", `3`},
			{"cast(12.50 as decimal(10,2))", `"12.50"`}, {"cast('123456789012345678901234567890.123456789' as decimal(60,9))", `"123456789012345678901234567890.123456789"`}, {"sum(1)", `"1"`},
			{"'ä€😀'", `"ä€😀"`}, {"x'00ff'", `"AP8="`}, {"b'101'", `"BQ=="`},
			{"cast('2026-01-02' as date)", `"2026-01-02"`}, {"cast('2026-01-02 03:04:05.678901' as datetime(6))", `"2026-01-02T03:04:05.678901Z"`},
			{"cast('2026-01-02 03:04:05' as datetime)", `"2026-01-02T03:04:05.000Z"`}, {"timestamp('2026-01-02 03:04:05')", `"2026-01-02T03:04:05.000Z"`},
			{"from_unixtime(0)", `"1970-01-01T00:00:00.000Z"`}, {"cast('03:04:05' as time)", `"03:04:05"`},
		},
		"sqlite": {
			{"null", `null`}, {"7", `7`}, {"9223372036854775807", `9223372036854775807`}, {"0.1", `0.1`}, {"3.0", `3`}, {"9e999", `"+Inf"`},
			{"'ä€😀'", `"ä€😀"`}, {"x'00ff'", `"AP8="`},
		},
	}
	onAll(t, func(t *testing.T, s side) {
		p := local(t)
		for _, tt := range tables[s.name] {
			for _, with := range []string{"prepared", "as text"} { // drivers read the two differently
				config := map[string]any{"query": "select " + tt.sql + " as v", "readonly": true}
				if with == "prepared" {
					config["query"], config["args"] = config["query"].(string)+" having "+map[bool]string{true: "?::int", false: "?"}[s.name == "postgres"]+" = 1", []any{1}
				}
				if s.name != "postgres" && with == "prepared" {
					config["query"] = "select " + tt.sql + " as v from (select 1 as x) y where ? = 1"
				}
				r, err := s.call(t, p, "c", config)
				want := `{"rows":[{"v":` + tt.want + `}]}`
				if err != nil || encoded(t, r.Body) != want {
					t.Errorf("%s %s: %s %v, want %s", tt.sql, with, encoded(t, r.Body), err, want)
				}
			}
		}
	})
}

// TestColumnsComeOut reads columns, of which some types show only there.
func TestColumnsComeOut(t *testing.T) {
	for name, tt := range map[string]struct{ columns, values, want string }{
		"mysql": {"j json, d datetime, e enum('x','y'), b bit(3), y year, bin binary(2), vb varbinary(5), bl blob, tx text, ti tinyint unsigned",
			"'[1]', '2026-01-02 03:04:05', 'y', b'101', 2026, 'ab', 'c', 'd', 'e', 255",
			`{"b":5,"bin":"YWI=","bl":"ZA==","d":"2026-01-02T03:04:05.000Z","e":"y","j":"[1]","ti":255,"tx":"e","vb":"Yw==","y":2026}`},
		"sqlite": {"j json, d datetime, day date, b boolean, n decimal(10,2), bl blob", `'{"a":[1]}', '2026-01-02 03:04:05', '2026-01-02', 1, 12.5, x'01'`,
			`{"b":true,"bl":"AQ==","d":"2026-01-02T03:04:05.000Z","day":"2026-01-02","j":{"a":[1]},"n":12.5}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := on(t, name)
			s.exec(t, "create table things ("+tt.columns+")")
			s.exec(t, "insert into things values ("+tt.values+")")
			for _, config := range []map[string]any{{"query": "select * from things"}, {"query": "select * from things where ? = 1", "args": []any{1}}} {
				config["readonly"] = true
				body := s.must(t, local(t), 200, "c", config)
				if got := encoded(t, body["rows"].([]any)[0]); got != tt.want {
					t.Errorf("\n%s\nwant\n%s", got, tt.want)
				}
			}
		})
	}
}

// TestValuesGoInAndComeBack writes each canonical value and reads it again.
func TestValuesGoInAndComeBack(t *testing.T) {
	type row struct {
		column string
		in     any
		want   string
	}
	tables := map[string][]row{
		"postgres": {
			{"integer", 7, `7`}, {"bigint", 9007199254740993, `9007199254740993`}, {"text", 7, `"7"`}, {"numeric(20,4)", 0.1, `"0.1000"`}, {"numeric(30,2)", "12345678901234567890.12", `"12345678901234567890.12"`}, {"numeric(20)", json.Number("18446744073709551615"), `"18446744073709551615"`},
			{"float8", 1e21, `1e+21`}, {"boolean", true, `true`}, {"text", nil, `null`}, {"integer", "7", `7`}, {"timestamptz", "2026-01-02T03:04:05.678Z", `"2026-01-02T03:04:05.678Z"`},
			{"date", "2026-01-02", `"2026-01-02"`}, {"uuid", "5b1a2c4e-0000-4000-8000-00000000000a", `"5b1a2c4e-0000-4000-8000-00000000000a"`},
			{"jsonb", map[string]any{"a": []any{1, "x", nil}}, `{"a":[1,"x",null]}`}, {"json", []any{}, `[]`}, {"text", map[string]any{"a": 1}, `"{\"a\":1}"`}, {"text", "", `""`},
		},
		"mysql": {
			{"integer", 7, `7`}, {"bigint", 9007199254740993, `9007199254740993`}, {"varchar(20)", 7, `"7"`}, {"decimal(20,4)", 0.1, `"0.1000"`}, {"decimal(30,2)", "12345678901234567890.12", `"12345678901234567890.12"`}, {"bigint unsigned", json.Number("18446744073709551615"), `"18446744073709551615"`},
			{"double", 1e21, `1e+21`}, {"boolean", true, `1`}, {"text", nil, `null`}, {"integer", "7", `7`}, {"datetime(3)", "2026-01-02 03:04:05.678", `"2026-01-02T03:04:05.678Z"`},
			{"date", "2026-01-02", `"2026-01-02"`}, {"text", map[string]any{"a": []any{1, "x", nil}}, `"{\"a\":[1,\"x\",null]}"`}, {"text", "", `""`},
		},
		"sqlite": {
			{"integer", 7, `7`}, {"bigint", 9007199254740993, `9007199254740993`}, {"text", 7, `"7"`}, {"decimal(20,4)", 0.1, `0.1`}, {"text", "12345678901234567890.12", `"12345678901234567890.12"`}, {"text", json.Number("18446744073709551615"), `"18446744073709551615"`},
			{"real", 1e21, `1e+21`}, {"boolean", true, `true`}, {"text", nil, `null`}, {"datetime", "2026-01-02T03:04:05.678Z", `"2026-01-02T03:04:05.678Z"`}, {"date", "2026-01-02", `"2026-01-02"`},
			{"json", map[string]any{"a": []any{1, "x", nil}}, `{"a":[1,"x",null]}`}, {"text", map[string]any{"a": 1}, `"{\"a\":1}"`}, {"text", "", `""`},
		},
	}
	onAll(t, func(t *testing.T, s side) {
		p := local(t)
		for i, tt := range tables[s.name] {
			s.exec(t, fmt.Sprintf("create table t%d (v %s)", i, tt.column))
			s.must(t, p, 200, fmt.Sprint("c", i), map[string]any{"exec": fmt.Sprintf("insert into t%d (v) values (?)", i), "args": []any{tt.in}})
			body := s.must(t, p, 200, "r", map[string]any{"query": fmt.Sprintf("select v from t%d", i), "readonly": true})
			if got, want := encoded(t, body), `{"rows":[{"v":`+tt.want+`}]}`; got != want {
				t.Errorf("%s of %v: %s, want %s", tt.column, tt.in, got, want)
			}
		}
	})
}

// TestPayloadsAreData: what is SQL elsewhere is text here.
func TestPayloadsAreData(t *testing.T) {
	onAll(t, func(t *testing.T, s side) {
		s.exec(t, "create table notes (id integer, body text)")
		p := local(t)
		for i, body := range []string{
			"'; drop table notes; --", `"; drop table notes; --`, "' or '1'='1", `\'; drop table notes; #`, "?; $1; :a; @b", "1); commit; --", "/*", "${payload.x}", "=secret.PW",
			"\\", "%00", "\x1a", "𝒳' UNION SELECT * FROM notes--", "$$;select 1;$$", "0x27", "¿'or 1=1",
		} {
			s.must(t, p, 200, fmt.Sprint("w", i), map[string]any{"exec": "insert into notes (id, body) values (?, ?)", "args": []any{i, body}})
			got := s.must(t, p, 200, fmt.Sprint("r", i), map[string]any{"query": "select id, body from notes where body = ?", "args": []any{body}})
			want := encoded(t, map[string]any{"rows": []any{map[string]any{"id": i, "body": body}}})
			if encoded(t, got) != want {
				t.Errorf("%q came back as %s", body, encoded(t, got))
			}
		}
		if n := s.number(t, "select count(*) from notes"); n != 16 {
			t.Errorf("%d notes", n)
		}
	})
}

func TestWhatAnExecAnswers(t *testing.T) {
	for name, want := range map[string][]string{
		"postgres": {`{"affected":2}`, `{"affected":1}`, `{"affected":0}`},
		"mysql":    {`{"affected":2,"last_id":1}`, `{"affected":1}`, `{"affected":0}`},
		"sqlite":   {`{"affected":2,"last_id":2}`, `{"affected":1}`, `{"affected":0}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := on(t, name)
			s.exec(t, map[string]string{"postgres": "create table o (id serial primary key, n integer)", "mysql": "create table o (id integer auto_increment primary key, n integer)", "sqlite": "create table o (id integer primary key, n integer)"}[name])
			p := local(t)
			for i, text := range []string{"insert into o (n) values (1), (2)", "update o set n = 1 where n = 1", "update o set n = 3 where n = 77"} {
				if got := encoded(t, s.must(t, p, 200, fmt.Sprint("c", i), map[string]any{"exec": text})); got != want[i] {
					t.Errorf("%s: %s, want %s", text, got, want[i])
				}
			}
		})
	}
}
