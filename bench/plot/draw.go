package plot

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// An Axis is one of a figure's two.
type Axis struct {
	Label string
	Log   bool // logarithmic: values not above 0 are omitted
	Bytes bool // values are bytes: marks are powers of two, with their units
	Whole bool // ticks only at values of a line, as for counts like 1, 2, 4
}

// A Line joins points in the order in which they are given.
type Line struct {
	Name   string // in the legend
	X, Y   []float64
	Dashed bool // thin and without symbols, for values that were not measured
}

// A Mark is a ring around a point, with a label.
type Mark struct {
	X, Y float64
	Text string
}

// A Figure is the content of one file.
type Figure struct {
	Title string
	X, Y  Axis
	Lines []Line
	Marks []Mark
}

// Size of a figure in the image, in pixels.
const (
	Width  = 1200
	Height = 800
)

const dpi = 144

// ErrEmpty says that no point can be drawn.
var ErrEmpty = errors.New("no point to draw")

// WritePNG draws the figure as a PNG image of Width by Height pixels, the legend at its right. The
// first lines have colours that are easy to distinguish, also with colour blindness; beyond those,
// the symbols differ.
func (f Figure) WritePNG(w io.Writer) error {
	p, legend, err := f.plot()
	if err != nil {
		return fmt.Errorf("plot: %q: %w", f.Title, err)
	}
	image := vgimg.NewWith(vgimg.UseWH(pixels(Width), pixels(Height)), vgimg.UseDPI(dpi), vgimg.UseBackgroundColor(color.White))
	c := draw.Crop(draw.New(image), margin, -margin, margin, -margin)
	beside := legend.Rectangle(c).Size().X + margin
	p.Draw(draw.Crop(c, 0, -beside, 0, 0))
	legend.Draw(draw.Crop(c, 0, 0, 0, -3*margin)) // below the height of the title
	if _, err := (vgimg.PngCanvas{Canvas: image}).WriteTo(w); err != nil {
		return fmt.Errorf("plot: %q: %w", f.Title, err)
	}
	return nil
}

// WriteFile writes that image to a file.
func (f Figure) WriteFile(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(f.WritePNG(file), file.Close())
}

var margin = vg.Points(9)

func pixels(n int) vg.Length { return vg.Length(n) / dpi * vg.Inch }

// plot builds the library's figure, and separately the legend, which the library would draw over
// the lines.
func (f Figure) plot() (*plot.Plot, *plot.Legend, error) {
	p, legend := plot.New(), plot.NewLegend()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = f.Title, f.X.Label, f.Y.Label
	useFont(p, &legend)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{225}, color.Gray{225}
	p.Add(grid)
	var xs, ys []float64
	for i, l := range f.Lines {
		points, err := f.points(l)
		if err != nil {
			return nil, nil, err
		}
		if len(points) == 0 {
			continue
		}
		if err := addLine(p, &legend, l, points, i); err != nil {
			return nil, nil, err
		}
		for _, at := range points {
			xs, ys = append(xs, at.X), append(ys, at.Y)
		}
	}
	if len(xs) == 0 {
		return nil, nil, ErrEmpty
	}
	if err := f.addMarks(p); err != nil {
		return nil, nil, err
	}
	f.X.apply(&p.X, xs)
	f.Y.apply(&p.Y, ys)
	return p, &legend, nil
}

// points returns the points of a line that its axes can show.
func (f Figure) points(l Line) (plotter.XYs, error) {
	if len(l.X) != len(l.Y) {
		return nil, fmt.Errorf("line %q has %d values of x and %d of y", l.Name, len(l.X), len(l.Y))
	}
	var points plotter.XYs
	for i := range l.X {
		if f.X.canShow(l.X[i]) && f.Y.canShow(l.Y[i]) {
			points = append(points, plotter.XY{X: l.X[i], Y: l.Y[i]})
		}
	}
	return points, nil
}

// The colours are those of Okabe and Ito, which are distinguishable with colour blindness.
var colours = []color.RGBA{
	{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255},
	{230, 159, 0, 255}, {86, 180, 233, 255}, {0, 0, 0, 255}, {140, 120, 30, 255},
}

var symbols = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.TriangleGlyph{}, draw.PyramidGlyph{}, draw.CrossGlyph{}, draw.PlusGlyph{}}

func addLine(p *plot.Plot, legend *plot.Legend, l Line, points plotter.XYs, i int) error {
	line, err := plotter.NewLine(points)
	if err != nil {
		return fmt.Errorf("line %q: %w", l.Name, err)
	}
	line.Color, line.Width = colours[i%len(colours)], vg.Points(1.6)
	if l.Dashed {
		line.Color, line.Width = color.Gray{90}, vg.Points(1.2)
		line.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
		p.Add(line)
		legend.Add(l.Name, line)
		return nil
	}
	dots, err := plotter.NewScatter(points)
	if err != nil {
		return fmt.Errorf("line %q: %w", l.Name, err)
	}
	dots.GlyphStyle = draw.GlyphStyle{Color: line.Color, Radius: vg.Points(2.6), Shape: symbols[(i+i/len(colours))%len(symbols)]}
	p.Add(line, dots)
	legend.Add(l.Name, line, dots)
	return nil
}

func (f Figure) addMarks(p *plot.Plot) error {
	var at plotter.XYLabels
	for _, m := range f.Marks {
		if f.X.canShow(m.X) && f.Y.canShow(m.Y) {
			at.XYs, at.Labels = append(at.XYs, plotter.XY{X: m.X, Y: m.Y}), append(at.Labels, m.Text)
		}
	}
	if len(at.Labels) == 0 {
		return nil
	}
	rings, err := plotter.NewScatter(at.XYs)
	if err != nil {
		return err
	}
	rings.GlyphStyle = draw.GlyphStyle{Color: color.Black, Radius: vg.Points(6), Shape: draw.RingGlyph{}}
	words, err := plotter.NewLabels(at)
	if err != nil {
		return err
	}
	words.Offset = vg.Point{X: vg.Points(8), Y: vg.Points(7)}
	for i := range words.TextStyle {
		words.TextStyle[i].Font = sans(words.TextStyle[i].Font, 9)
	}
	p.Add(rings, words)
	return nil
}

// useFont sets the library's sans-serif font for all text.
func useFont(p *plot.Plot, legend *plot.Legend) {
	for _, s := range []struct {
		style *text.Style
		size  float64
	}{
		{&p.Title.TextStyle, 13}, {&p.X.Label.TextStyle, 11}, {&p.Y.Label.TextStyle, 11},
		{&p.X.Tick.Label, 9}, {&p.Y.Tick.Label, 9}, {&legend.TextStyle, 9},
	} {
		s.style.Font = sans(s.style.Font, s.size)
	}
	p.Title.Padding = vg.Points(6)
	legend.Top = true
	legend.Padding = vg.Points(3)
	legend.ThumbnailWidth = vg.Points(28)
}

func sans(f font.Font, size float64) font.Font {
	f.Variant, f.Size = "Sans", vg.Points(size)
	return f
}
