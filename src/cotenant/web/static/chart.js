// One chart: lines of one unit, their thresholds dashed, incidents shaded. Drawn by dygraphs.
"use strict";

const Chart = (() => {
  // The legend is ours: dygraphs' own sets style attributes, which the page's content security policy refuses.
  Dygraph.PLUGINS = Dygraph.PLUGINS.filter((plugin) => plugin !== Dygraph.Plugins.Legend);

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const shown = (value, digits) => Number(value.toPrecision(digits)).toString();

  function text(unit, value) {
    if (value === null || value === undefined || Number.isNaN(value)) return "–";
    const size = Math.abs(value);
    switch (unit) {
      case "ratio": return size * 100 >= 10 || value === 0 ? `${Math.round(value * 100)} %` : `${(value * 100).toFixed(1)} %`;
      case "usec":
        if (size < 1e3) return `${shown(value, 3)} µs`;
        return size < 1e6 ? `${shown(value / 1e3, 3)} ms` : `${shown(value / 1e6, 3)} s`;
      case "bytes": case "bytes_per_sec": {
        const units = ["B", "KiB", "MiB", "GiB", "TiB"];
        let step = 0;
        while (Math.abs(value) >= 1024 && step < 4) { value /= 1024; step += 1; }
        return `${shown(value, 3)} ${units[step]}${unit === "bytes" ? "" : "/s"}`;
      }
      case "per_sec": return `${size >= 100 ? Math.round(value).toLocaleString("en") : shown(value, 3)}/s`;
      case "times": return `${shown(value, 3)} ×`;
      default: return size < 1 ? value.toFixed(2) : shown(value, 3);
    }
  }

  class LineChart {
    // options: element, names, unit, thresholds (shared object), incidents (function), onHover(row or null)
    constructor(options) {
      Object.assign(this, options);
      this.rows = [];
      this.graph = null;
    }

    setRows(rows) { this.rows = rows; }

    range() {
      let top = 0;
      for (const row of this.rows) for (let i = 1; i < row.length; i += 1) if (row[i] > top) top = row[i];
      for (const name of this.names) if (this.thresholds[name] > top) top = this.thresholds[name];
      if (top === 0) top = this.unit === "usec" ? 1000 : 1;
      top *= 1.12;
      return [0, this.unit === "ratio" && top > 1 && top < 1.2 ? 1.04 : top];
    }

    draw(window) {
      if (!this.rows.length || this.element.clientWidth === 0) return;
      const change = { file: this.rows, dateWindow: window, valueRange: this.range() };
      if (this.graph) { this.graph.updateOptions(change); return; }
      const labels = ["time", ...this.names];
      this.graph = new Dygraph(this.element, this.rows, {
        ...change, labels, connectSeparatedPoints: false, drawPoints: false, strokeWidth: 1.6,
        fillGraph: this.names.length === 1, fillAlpha: 0.1, showLabelsOnHighlight: false, highlightCircleSize: 3,
        labelsUTC: true, rightGap: 6, yRangePad: 0, xRangePad: 0, colors: this.colours(),
        axes: {
          x: { axisLineColor: colour("--line"), gridLineColor: colour("--grid"), drawGrid: false, pixelsPerLabel: 70,
               axisLabelColor: colour("--soft") },
          y: { axisLineColor: colour("--card"), gridLineColor: colour("--grid"), axisLabelWidth: 58, pixelsPerLabel: 34,
               axisLabelFormatter: (value) => text(this.unit, value) },
        },
        interactionModel: {}, underlayCallback: (canvas, area, graph) => this.underlay(canvas, area, graph),
        highlightCallback: (event, x, points, row) => this.onHover && this.onHover(row),
        unhighlightCallback: () => this.onHover && this.onHover(null),
      });
    }

    colours() { return this.names.map((_, index) => colour(`--c${index}`)); }

    recolour() {
      if (this.graph) { this.graph.destroy(); this.graph = null; }
    }

    underlay(canvas, area, graph) {
      canvas.save();
      canvas.fillStyle = colour("--shade");
      for (const span of this.incidents()) {
        const left = Math.max(graph.toDomXCoord(span.start_ms), area.x);
        const right = span.end_ms === null ? area.x + area.w : Math.min(graph.toDomXCoord(span.end_ms), area.x + area.w);
        if (right > area.x && left < area.x + area.w) canvas.fillRect(left, area.y, Math.max(right - left, 2), area.h);
      }
      canvas.setLineDash([5, 4]);
      canvas.lineWidth = 1;
      this.names.forEach((name, index) => {
        const threshold = this.thresholds[name];
        if (threshold === undefined) return;
        const y = Math.round(graph.toDomYCoord(threshold)) + 0.5;
        canvas.strokeStyle = colour(`--c${index}`);
        canvas.beginPath();
        canvas.moveTo(area.x, y);
        canvas.lineTo(area.x + area.w, y);
        canvas.stroke();
      });
      canvas.restore();
    }

    select(row) {
      if (!this.graph) return;
      if (row === null || row >= this.rows.length) this.graph.clearSelection();
      else this.graph.setSelection(row);
    }
  }

  return { LineChart, text };
})();
