package plot

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"image/png"
	"math"
	"strings"
	"testing"
)

func drawn(t *testing.T, f Figure) image.Image {
	t.Helper()
	var b bytes.Buffer
	if err := f.WritePNG(&b); err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	if img.Bounds().Dx() != Width || img.Bounds().Dy() != Height {
		t.Fatalf("the image is %v", img.Bounds())
	}
	return img
}

// count counts the pixels of one colour in a part of the image, in tenths.
func count(img image.Image, c color.RGBA, part image.Rectangle) (n int) {
	for y := part.Min.Y * Height / 10; y < part.Max.Y*Height/10; y++ {
		for x := part.Min.X * Width / 10; x < part.Max.X*Width/10; x++ {
			r, g, b, _ := img.At(x, y).RGBA()
			if uint8(r>>8) == c.R && uint8(g>>8) == c.G && uint8(b>>8) == c.B {
				n++
			}
		}
	}
	return n
}

// Lines are where their values are, each in a colour of its own, and the legend is right of them
// all.
func TestLines(t *testing.T) {
	img := drawn(t, Figure{
		Title: "t", X: Axis{Label: "size", Log: true, Bytes: true}, Y: Axis{Label: "time (ms)", Log: true},
		Lines: []Line{
			{Name: "rises", X: []float64{8, 1 << 10, 1 << 20}, Y: []float64{1, 10, 100}},
			{Name: "falls", X: []float64{8, 1 << 10, 1 << 20}, Y: []float64{100, 10, 1}},
		},
	})
	lowLeft, highLeft := image.Rect(0, 7, 4, 9), image.Rect(0, 1, 4, 3)
	if up, down := count(img, colours[0], lowLeft), count(img, colours[1], lowLeft); up < 50 || down > 0 {
		t.Errorf("below left: %d of the rising line, %d of the falling", up, down)
	}
	if up, down := count(img, colours[0], highLeft), count(img, colours[1], highLeft); up > 0 || down < 50 {
		t.Errorf("above left: %d of the rising line, %d of the falling", up, down)
	}
	legend := image.Rect(9, 0, 10, 3)
	for i := range 2 {
		if n := count(img, colours[i], legend); n < 5 {
			t.Errorf("line %d has %d pixels in the legend", i, n)
		}
	}
}

// Values that an axis cannot show are omitted, and a figure without others is an error.
func TestNothingToDraw(t *testing.T) {
	f := Figure{Title: "empty", X: Axis{Log: true}, Y: Axis{Log: true}, Lines: []Line{{Name: "bad", X: []float64{0, 1, 2, 3}, Y: []float64{1, -1, math.NaN(), math.Inf(1)}}}}
	if err := f.WritePNG(new(bytes.Buffer)); !errors.Is(err, ErrEmpty) || !strings.Contains(err.Error(), "empty") {
		t.Error(err)
	}
	f.Lines = append(f.Lines, Line{Name: "one point", X: []float64{5}, Y: []float64{7}})
	drawn(t, f)
	f.Lines[0].Y = f.Lines[0].Y[1:]
	if err := f.WritePNG(new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), `"bad"`) {
		t.Error(err)
	}
}

func TestMarks(t *testing.T) {
	f := Figure{Title: "t", X: Axis{Label: "flits", Whole: true, Log: true}, Y: Axis{Label: "ms"}, Lines: []Line{{Name: "l", X: []float64{1, 2, 4, 8}, Y: []float64{4, 3, 2, 3}}}}
	plain := count(drawn(t, f), color.RGBA{A: 255}, image.Rect(4, 2, 8, 9))
	f.Marks = []Mark{{X: 4, Y: 2, Text: "chosen"}, {X: -1, Y: 2, Text: "nowhere"}}
	if marked := count(drawn(t, f), color.RGBA{A: 255}, image.Rect(4, 2, 8, 9)); marked < plain+20 {
		t.Errorf("%d black pixels, %d without the mark", marked, plain)
	}
}

func TestTicks(t *testing.T) {
	words := func(a Axis, from, to float64) string {
		var all []string
		ticks := decadeTicks(from, to)
		if a.Bytes {
			ticks = byteTicks(from, to)
		}
		for _, tick := range ticks {
			if !tick.IsMinor() {
				all = append(all, tick.Label)
			}
		}
		return strings.Join(all, " ")
	}
	for _, tc := range []struct {
		a        Axis
		from, to float64
		want     string
	}{
		{Axis{Bytes: true}, 7, 2 << 20, "8 B 32 B 128 B 512 B 2 KiB 8 KiB 32 KiB 128 KiB 512 KiB 2 MiB"},
		{Axis{Bytes: true}, 1000, 5000, "1 KiB 2 KiB 4 KiB"},
		{Axis{}, 0.9, 30, "1 2 5 10 20"},
		{Axis{}, 11.5, 19, "12 15 18"},
		{Axis{}, 0.9, 5000, "1 10 100 1000"},
	} {
		if got := words(tc.a, tc.from, tc.to); got != tc.want {
			t.Errorf("%v to %v: %q, want %q", tc.from, tc.to, got, tc.want)
		}
	}
}
