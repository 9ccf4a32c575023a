// Runs statements through go-ora and prints their rows; README.md has the form.
package main

import (
	"bufio"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	goora "github.com/sijms/go-ora/v2"
	"github.com/sijms/go-ora/v2/network"
)

var out = bufio.NewWriter(os.Stdout)

func show(thing map[string]any) {
	line, err := json.Marshal(thing)
	if err != nil {
		panic(err)
	}
	out.Write(line)
	out.WriteByte('\n')
}

func showError(err error) {
	code := 0
	var known *network.OracleError
	if errors.As(err, &known) {
		code = known.ErrCode
	}
	show(map[string]any{"error": code, "message": err.Error()})
}

func momentText(at time.Time) string {
	sign := ""
	year := at.Year()
	if year < 0 {
		sign, year = "-", -year
	}
	return fmt.Sprintf("%s%04d-%02d-%02d %02d:%02d:%02d.%09d", sign, year, at.Month(), at.Day(),
		at.Hour(), at.Minute(), at.Second(), at.Nanosecond())
}

var yearMonth = regexp.MustCompile(`^([+-])(\d+)-(\d+)$`)
var daySecond = regexp.MustCompile(`^([+-])(\d+) (\d+):(\d+):(\d+)\.(\d{6})$`)

// The driver makes texts of intervals, with microseconds at best; these are their months, or their
// nanoseconds. The factors are how many of each part make one of the part before it.
func intervalText(text string, form *regexp.Regexp, unit int64, factors ...int64) string {
	parts := form.FindStringSubmatch(text)
	if parts == nil {
		return "not an interval: " + text
	}
	total := int64(0)
	for i, factor := range factors {
		number, _ := strconv.ParseInt(parts[i+2], 10, 64)
		total = total*factor + number
	}
	if parts[1] == "-" {
		total = -total
	}
	return strconv.FormatInt(total*unit, 10)
}

func valueText(value any, kind string) any {
	switch typed := value.(type) {
	case nil:
		return nil
	case time.Time:
		switch {
		case strings.HasPrefix(kind, "TimeStampTZ"):
			return momentText(typed) + typed.Format(" -07:00")
		case strings.Contains(kind, "LTZ"):
			return momentText(typed.UTC())
		}
		return momentText(typed)
	case []byte:
		return hex.EncodeToString(typed)
	case float64:
		return strconv.FormatFloat(typed, 'g', -1, 64)
	case float32:
		return strconv.FormatFloat(float64(typed), 'g', -1, 32)
	case string:
		switch kind {
		case "IntervalYM_DTY":
			return intervalText(typed, yearMonth, 1, 1, 12)
		case "IntervalDS_DTY":
			return intervalText(typed, daySecond, 1000, 1, 24, 60, 60, 1000000)
		}
	}
	return fmt.Sprint(value)
}

func run(connection *sql.DB, statement string) error {
	rows, err := connection.Query(statement)
	if err != nil {
		return err
	}
	defer rows.Close()
	types, err := rows.ColumnTypes()
	if err != nil {
		return err
	}
	columns := []any{}
	for _, column := range types {
		precision, scale, known := column.DecimalSize()
		if known {
			columns = append(columns, []any{column.Name(), column.DatabaseTypeName(), precision, scale})
		} else {
			columns = append(columns, []any{column.Name(), column.DatabaseTypeName(), nil, nil})
		}
	}
	show(map[string]any{"columns": columns})
	values := make([]any, len(types))
	targets := make([]any, len(types))
	for i := range values {
		targets[i] = &values[i]
	}
	count := 0
	for ; rows.Next(); count++ {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		texts := make([]any, len(values))
		for i, value := range values {
			texts[i] = valueText(value, types[i].DatabaseTypeName())
		}
		show(map[string]any{"row": texts})
	}
	if err := rows.Err(); err != nil {
		return err
	}
	show(map[string]any{"rows": count})
	return nil
}

func main() {
	defer out.Flush()
	port, _ := strconv.Atoi(os.Args[3])
	options := map[string]string{"PREFETCH_ROWS": os.Args[5]}
	url := goora.BuildUrl(os.Args[2], port, os.Args[4], os.Args[1], os.Getenv("WITNESS_PASSWORD"), options)
	connection, err := sql.Open("oracle", url)
	if err == nil {
		err = connection.Ping()
	}
	if err != nil {
		showError(err)
		return
	}
	defer connection.Close()
	// One connection for every statement, as the other clients have it.
	connection.SetMaxOpenConns(1)
	show(map[string]any{"connected": ""})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if err := run(connection, lines.Text()); err != nil {
			showError(err)
		}
	}
}
