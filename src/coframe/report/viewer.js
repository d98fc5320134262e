// SPDX-License-Identifier: MIT
// Draws the scene (WebGL 2) and links the controls, the views and the charts. Works on data in the page; fetches nothing.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const header = JSON.parse($("header").textContent);
  if (!header.arrays) return;

  // Clouds marked as wrong: the command that leaves them out.
  const again = $("again"), marks = [...document.querySelectorAll("[data-exclude]")];
  for (const mark of marks) mark.addEventListener("change", () => {
    const out = marks.filter((each) => each.checked).map((each) => ` --exclude ${each.dataset.exclude}`);
    again.hidden = !out.length;
    again.textContent = again.dataset.command + out.join("");
  });

  // ---- data -------------------------------------------------------------------------------------------------------------
  const raw = Uint8Array.from(atob($("arrays").textContent), (c) => c.charCodeAt(0));
  const bytes = (key) => raw.subarray(header.arrays[key][0], header.arrays[key][0] + header.arrays[key][1]);
  const floats = (key) => new Float32Array(raw.buffer, header.arrays[key][0], header.arrays[key][1] / 4);
  const clouds = header.counts.length, frames = header.frames.length, last = frames - 1;
  const poses = floats("poses"), model = floats("model");
  const first = header.counts.map(((sum) => (n) => (sum += n) - n)(0));
  const { low, high, origin, spacing, dimension } = header;
  const size = high.map((h, i) => h - low[i]);
  const radius = Math.hypot(...size) / 2 || 1;

  const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255);
  const mix = (a, b, t) => a.map((v, i) => v + (b[i] - v) * t);
  const chips = [...document.querySelectorAll(".chip")];
  const colours = chips.map((chip) => rgb(chip.style.getPropertyValue("--c")));
  const themes = {
    light: { back: [0.984, 0.984, 0.988], ink: [0.1, 0.12, 0.14], model: [0.55, 0.6, 0.66], bad: [0.75, 0.15, 0.12], lift: 0 },
    dark: { back: [0.067, 0.086, 0.102], ink: [0.95, 0.96, 0.97], model: [0.62, 0.67, 0.72], bad: [1, 0.45, 0.4], lift: 0.12 },
    print: { back: [1, 1, 1], ink: [0, 0, 0], model: [0.55, 0.6, 0.66], bad: [0.75, 0.15, 0.12], lift: 0 },
  };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let printing = false;
  const theme = () => themes[printing ? "print" : dark.matches ? "dark" : "light"];

  // ---- state, all of it -------------------------------------------------------------------------------------------------
  const lying = dimension === 3 && header.up === 2;  // seen from above; others stand on y
  const standing = dimension === 3 && !lying;
  const state = {
    frame: last, shown: colours.map(() => true), focus: -1, points: true, outliers: false, model: false, plane: false, own: false,
    size: 0, axis: "0", position: 0, thickness: 0.01,
  };

  // ---- little linear algebra; matrices are column-major, as WebGL wants them ----------------------------------------------
  const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
  const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
  const unit = (a) => { const n = Math.hypot(...a) || 1; return a.map((v) => v / n); };
  const turned = (v, axis, angle) => {  // Rodrigues
    const c = Math.cos(angle), s = Math.sin(angle), k = cross(axis, v), d = dot(axis, v) * (1 - c);
    return v.map((x, i) => x * c + k[i] * s + axis[i] * d);
  };
  const looking = (eye, right, up, back) => [  // rows right, up, back; then the eye goes to the origin
    right[0], up[0], back[0], 0, right[1], up[1], back[1], 0, right[2], up[2], back[2], 0, -dot(right, eye), -dot(up, eye), -dot(back, eye), 1];
  const perspective = (f, aspect, near, far) => [
    f / aspect, 0, 0, 0, 0, f, 0, 0, 0, 0, (far + near) / (near - far), -1, 0, 0, 2 * far * near / (near - far), 0];
  const orthographic = (w, h, d) => [1 / w, 0, 0, 0, 0, 1 / h, 0, 0, 0, 0, -1 / d, 0, 0, 0, 0, 1];
  const poseOf = (frame, cloud) => {
    const p = poses.subarray(12 * (frame * clouds + cloud));
    return [p[0], p[4], p[8], 0, p[1], p[5], p[9], 0, p[2], p[6], p[10], 0, p[3], p[7], p[11], 1];
  };

  // ---- shaders ----------------------------------------------------------------------------------------------------------
  const POINT = [`#version 300 es
    layout(location=0) in vec3 position; layout(location=1) in float outlier; layout(location=2) in vec3 own;
    uniform mat4 pose, view, projection; uniform vec3 colour, ink, back; uniform float size, least, faded;
    uniform bool useOwn, outliers, scatter; uniform vec4 slab; uniform float thickness;
    out vec3 tint;
    void main() {
      vec4 world = pose * vec4(position, 1.0);
      bool hidden = (outlier > 0.5 && !outliers) || (thickness > 0.0 && abs(dot(slab.xyz, world.xyz) - slab.w) > thickness / 2.0);
      gl_Position = hidden ? vec4(2.0, 2.0, 2.0, 1.0) : projection * view * world;
      gl_PointSize = clamp(size / gl_Position.w, least, 64.0);
      // In a section no cloud may lie on top of the others, so the order of points is left to chance.
      if (scatter && !hidden) gl_Position.z = fract(sin(float(gl_VertexID) * 12.9898) * 43758.5453) * 1.8 - 0.9;
      tint = mix(outlier > 0.5 ? ink : useOwn ? own : colour, back, faded);
    }`, `#version 300 es
    precision highp float; in vec3 tint; out vec4 pixel;
    void main() { vec2 d = gl_PointCoord - 0.5; if (dot(d, d) > 0.25) discard; pixel = vec4(tint, 1.0); }`];
  const ELLIPSOID = [`#version 300 es
    layout(location=0) in vec3 corner; layout(location=3) in vec3 mean; layout(location=4) in vec3 rootA; layout(location=5) in vec3 rootB;
    layout(location=6) in float reliable; uniform mat4 view, projection; uniform vec3 colour, bad; out vec3 tint; out vec3 normal;
    void main() {
      mat3 root = mat3(rootA.x, rootA.y, rootB.x, rootA.y, rootA.z, rootB.y, rootB.x, rootB.y, rootB.z);
      vec4 eye = view * vec4(mean + 1.732 * root * corner, 1.0);
      normal = mat3(view) * (inverse(root) * corner);
      tint = reliable > 0.5 ? colour : bad;
      gl_Position = projection * eye;
    }`, `#version 300 es
    precision highp float; in vec3 tint; in vec3 normal; out vec4 pixel;
    void main() { float light = abs(dot(normalize(normal), normalize(vec3(0.35, 0.5, 0.8)))); pixel = vec4(tint * (0.45 + 0.65 * light), 1.0); }`];
  const PLANE = [`#version 300 es
    layout(location=0) in vec2 corner; uniform mat4 view, projection; uniform vec3 centre, u, v; out vec2 place;
    void main() { place = corner; gl_Position = projection * view * vec4(centre + u * corner.x + v * corner.y, 1.0); }`, `#version 300 es
    precision highp float; in vec2 place; uniform vec3 colour; out vec4 pixel;
    void main() { vec2 d = (1.0 - abs(place)) / fwidth(place); pixel = vec4(colour, min(d.x, d.y) < 2.5 ? 0.9 : 0.13); }`];
  // Depth steps darken what lies behind them (eye-dome lighting): unlit points get a shape.
  const SHADE = [`#version 300 es
    layout(location=0) in vec2 corner; out vec2 place; void main() { place = corner * 0.5 + 0.5; gl_Position = vec4(corner, 0.0, 1.0); }`, `#version 300 es
    precision highp float; in vec2 place; uniform sampler2D colours, depths; uniform vec2 pixelSize; uniform vec2 range; uniform vec3 back; out vec4 pixel;
    const vec2 RING[8] = vec2[8](vec2(1.4, 0), vec2(2, 2), vec2(0, 1.4), vec2(-2, 2), vec2(-1.4, 0), vec2(-2, -2), vec2(0, -1.4), vec2(2, -2));
    float reach(vec2 p) { float z = 2.0 * texture(depths, p).r - 1.0; return 2.0 * range.x * range.y / (range.y + range.x - z * (range.y - range.x)); }
    void main() {
      vec3 colour = texture(colours, place).rgb;
      if (texture(depths, place).r == 1.0) { pixel = vec4(colour, 1.0); return; }
      float here = reach(place), sum = 0.0;
      for (int i = 0; i < 8; i++) sum += clamp(1.45 * (1.0 - reach(place + RING[i] * pixelSize) / here), 0.0, 0.1);
      pixel = vec4(colour * exp(-4.2 * sum), 1.0);
    }`];

  const sphere = (() => {  // an octahedron, each face cut into 4 twice
    let faces = [];
    for (const x of [1, -1]) for (const y of [1, -1]) for (const z of [1, -1]) faces.push([[x, 0, 0], [0, y, 0], [0, 0, z]]);
    for (let round = 0; round < 2; round++) faces = faces.flatMap(([a, b, c]) => {
      const ab = unit(a.map((v, i) => v + b[i])), bc = unit(b.map((v, i) => v + c[i])), ca = unit(c.map((v, i) => v + a[i]));
      return [[a, ab, ca], [ab, b, bc], [ca, bc, c], [ab, bc, ca]];
    });
    return new Float32Array(faces.flat(2));
  })();

  // ---- a canvas with the scene in it --------------------------------------------------------------------------------------
  class Screen {
    constructor(canvas) {
      this.canvas = canvas;
      const gl = this.gl = canvas.getContext("webgl2", { antialias: canvas.id === "section", preserveDrawingBuffer: true, powerPreference: "high-performance" });
      if (!gl) throw new Error("no WebGL 2");
      this.programs = { point: this.program(POINT), plane: this.program(PLANE), shade: this.program(SHADE), ellipsoid: this.program(ELLIPSOID) };
      this.pointArrays = gl.createVertexArray();
      gl.bindVertexArray(this.pointArrays);
      this.attribute(0, floats("points"), 3, gl.FLOAT);
      this.attribute(1, bytes("outlier"), 1, gl.UNSIGNED_BYTE);
      if (header.arrays.colours) this.attribute(2, bytes("colours"), 3, gl.UNSIGNED_BYTE, true);
      this.quad = gl.createVertexArray();
      gl.bindVertexArray(this.quad);
      this.attribute(0, new Float32Array([-1, -1, 1, -1, -1, 1, 1, 1]), 2, gl.FLOAT);
      gl.bindVertexArray(null);
      this.share = 1;
      new ResizeObserver(() => redraw()).observe(canvas);
    }
    program(sources) {
      const gl = this.gl, program = gl.createProgram();
      [gl.VERTEX_SHADER, gl.FRAGMENT_SHADER].forEach((kind, i) => {
        const shader = gl.createShader(kind);
        gl.shaderSource(shader, sources[i]);
        gl.compileShader(shader);
        if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
        gl.attachShader(program, shader);
      });
      gl.linkProgram(program);
      const places = {};
      for (let i = gl.getProgramParameter(program, gl.ACTIVE_UNIFORMS) - 1; i >= 0; i--) {
        const { name } = gl.getActiveUniform(program, i);
        places[name] = gl.getUniformLocation(program, name);
      }
      return { program, at: places };
    }
    attribute(place, data, width, kind, scaled = false, stride = 0, offset = 0, per = 0, buffer = null) {
      const gl = this.gl;
      if (!buffer) {
        buffer = gl.createBuffer();
        gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
        gl.bufferData(gl.ARRAY_BUFFER, data, gl.STATIC_DRAW);
      }
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
      gl.enableVertexAttribArray(place);
      gl.vertexAttribPointer(place, width, kind, scaled, stride, offset);
      gl.vertexAttribDivisor(place, per);
      return buffer;
    }
    fit() {  // the canvas in device pixels, and at least 1.5 per CSS pixel: round points need them
      const scale = Math.min(2, Math.max(1.5, devicePixelRatio)), box = this.canvas.getBoundingClientRect();
      const w = Math.max(1, Math.round(box.width * scale)), h = Math.max(1, Math.round(box.height * scale));
      if (this.canvas.width !== w || this.canvas.height !== h) { this.canvas.width = w; this.canvas.height = h; }
      return { w, h, scale };
    }
    drawPoints(view, projection, size, least, slab, thickness) {
      const { gl } = this, { program, at } = this.programs.point, look = theme();
      gl.useProgram(program);
      gl.bindVertexArray(this.pointArrays);
      gl.uniformMatrix4fv(at.view, false, view);
      gl.uniformMatrix4fv(at.projection, false, projection);
      gl.uniform3fv(at.ink, look.ink);
      gl.uniform3fv(at.back, look.back);
      gl.uniform1f(at.size, size);
      gl.uniform1f(at.least, least);
      gl.uniform1i(at.useOwn, state.own);
      gl.uniform1i(at.outliers, state.outliers);
      gl.uniform1i(at.scatter, thickness > 0);
      gl.uniform4fv(at.slab, slab);
      gl.uniform1f(at.thickness, thickness);
      for (let j = 0; j < clouds; j++) {
        if (!state.shown[j]) continue;
        gl.uniformMatrix4fv(at.pose, false, poseOf(state.frame, j));
        gl.uniform3fv(at.colour, mix(colours[j], [1, 1, 1], look.lift));
        gl.uniform1f(at.faded, state.focus >= 0 && state.focus !== j ? 0.85 : 0);
        gl.drawArrays(gl.POINTS, first[j], Math.max(1, Math.round(header.counts[j] * this.share)));
      }
    }
  }

  // ---- the view in space --------------------------------------------------------------------------------------------------
  class View extends Screen {
    constructor(canvas) {
      super(canvas);
      const gl = this.gl;
      this.ellipsoids = gl.createVertexArray();
      gl.bindVertexArray(this.ellipsoids);
      this.attribute(0, sphere, 3, gl.FLOAT);
      this.attribute(6, bytes("reliable"), 1, gl.UNSIGNED_BYTE, false, 0, 0, 1);
      this.modelBuffer = gl.createBuffer();
      gl.bindBuffer(gl.ARRAY_BUFFER, this.modelBuffer);
      gl.bufferData(gl.ARRAY_BUFFER, model, gl.STATIC_DRAW);
      gl.bindVertexArray(null);
      this.colours = gl.createTexture();
      this.depths = gl.createTexture();
      this.target = gl.createFramebuffer();
      this.reset();
    }
    reset() {
      this.up = lying ? [0, 0, 1] : [0, 1, 0];
      this.back = dimension === 2 ? [0, 0, 1] : unit(lying ? [0.35, -0.8, 0.65] : [0.3, 0.3, 1]);
      this.centre = [0, 0, 0];
      this.distance = 2.45 * radius;
      this.straighten();
    }
    straighten() {
      this.right = unit(cross(this.up, this.back));
      this.up = cross(this.back, this.right);
    }
    turn(dx, dy) {
      for (const [axis, angle] of [[this.up, -dx], [this.right, -dy]]) {
        this.back = unit(turned(this.back, axis, angle));
        this.up = unit(turned(this.up, axis, angle));
        this.straighten();
      }
    }
    move(dx, dy) {
      const s = this.unitsPerPixel();
      this.centre = this.centre.map((c, i) => c - s * (dx * this.right[i] - dy * this.up[i]));
    }
    zoom(factor) { this.distance = Math.min(60 * radius, Math.max(0.02 * radius, this.distance * factor)); }
    unitsPerPixel() { return 2 * this.distance / this.focal(1) / this.canvas.clientHeight; }
    focal(height) { const aspect = this.canvas.clientWidth / this.canvas.clientHeight; return 2.4 * Math.min(1, aspect) * height; }
    resize(w, h) {
      const gl = this.gl;
      if (this.w === w && this.h === h) return;
      [this.w, this.h] = [w, h];
      const formats = [[this.colours, gl.RGBA8, gl.RGBA, gl.UNSIGNED_BYTE, gl.LINEAR], [this.depths, gl.DEPTH_COMPONENT24, gl.DEPTH_COMPONENT, gl.UNSIGNED_INT, gl.NEAREST]];
      for (const [texture, inner, outer, kind, filter] of formats) {
        gl.bindTexture(gl.TEXTURE_2D, texture);
        gl.texImage2D(gl.TEXTURE_2D, 0, inner, w, h, 0, outer, kind, null);
        for (const key of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) gl.texParameteri(gl.TEXTURE_2D, key, filter);
        for (const key of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T]) gl.texParameteri(gl.TEXTURE_2D, key, gl.CLAMP_TO_EDGE);
      }
      gl.bindFramebuffer(gl.FRAMEBUFFER, this.target);
      gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, this.colours, 0);
      gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.DEPTH_ATTACHMENT, gl.TEXTURE_2D, this.depths, 0);
    }
    draw() {
      const { gl } = this, { w, h, scale } = this.fit(), look = theme();
      this.resize(w, h);
      const near = Math.max(this.distance - 4 * radius, 0.01 * this.distance), far = this.distance + 12 * radius;
      const eye = this.centre.map((c, i) => c + this.distance * this.back[i]);
      const view = looking(eye, this.right, this.up, this.back), projection = perspective(this.focal(1), w / h, near, far);
      gl.bindFramebuffer(gl.FRAMEBUFFER, this.target);
      gl.viewport(0, 0, w, h);
      gl.enable(gl.DEPTH_TEST);
      gl.clearColor(...look.back, 1);
      gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
      const world = 1.5 * spacing * 2 ** state.size / Math.sqrt(this.share);
      if (state.points) this.drawPoints(view, projection, world * this.focal(1) * h / 2, 1.2 * scale, [0, 0, 1, 0], 0);
      if (state.model) this.drawModel(view, projection, look);
      if (state.plane) this.drawPlane(view, projection, look);
      gl.bindFramebuffer(gl.FRAMEBUFFER, null);
      gl.disable(gl.DEPTH_TEST);
      const { program, at } = this.programs.shade;
      gl.useProgram(program);
      gl.bindVertexArray(this.quad);
      [this.colours, this.depths].forEach((texture, i) => { gl.activeTexture(gl.TEXTURE0 + i); gl.bindTexture(gl.TEXTURE_2D, texture); });
      gl.activeTexture(gl.TEXTURE0);
      gl.uniform1i(at.colours, 0);
      gl.uniform1i(at.depths, 1);
      gl.uniform2f(at.pixelSize, scale / w, scale / h);
      gl.uniform2f(at.range, near, far);
      gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4);
      this.drawAxes();
      scaleBar(this);
    }
    drawModel(view, projection, look) {
      const { gl } = this, { program, at } = this.programs.ellipsoid;
      let key = 0;
      header.keys.forEach((frame, i) => { if (Math.abs(frame - state.frame) <= Math.abs(header.keys[key] - state.frame)) key = i; });
      gl.useProgram(program);
      gl.bindVertexArray(this.ellipsoids);
      const begin = 36 * header.components * key;
      [3, 4, 5].forEach((place, i) => this.attribute(place, null, 3, gl.FLOAT, false, 36, begin + 12 * i, 1, this.modelBuffer));
      gl.uniformMatrix4fv(at.view, false, view);
      gl.uniformMatrix4fv(at.projection, false, projection);
      gl.uniform3fv(at.colour, look.model);
      gl.uniform3fv(at.bad, look.bad);
      gl.drawArraysInstanced(gl.TRIANGLES, 0, sphere.length / 3, header.components);
    }
    drawPlane(view, projection, look) {
      const { gl } = this, { program, at } = this.programs.plane, { u, v, centre } = sectionPlane();
      gl.useProgram(program);
      gl.bindVertexArray(this.quad);
      gl.uniformMatrix4fv(at.view, false, view);
      gl.uniformMatrix4fv(at.projection, false, projection);
      const reach = (axis) => 1.08 * axis.reduce((sum, a, i) => sum + Math.abs(a) * size[i] / 2, 0);
      gl.uniform3fv(at.centre, centre);
      gl.uniform3fv(at.u, u.map((x) => x * reach(u)));
      gl.uniform3fv(at.v, v.map((x) => x * reach(v)));
      gl.uniform3fv(at.colour, look.ink);
      gl.enable(gl.BLEND);
      gl.blendFuncSeparate(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA, gl.ONE, gl.ONE);
      gl.depthMask(false);
      gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4);
      gl.depthMask(true);
      gl.disable(gl.BLEND);
    }
    drawAxes() {
      const svg = this.canvas.parentElement.querySelector(".axes"), make = (kind, attributes) => {
        const element = document.createElementNS("http://www.w3.org/2000/svg", kind);
        for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
        return element;
      };
      svg.replaceChildren(...["x", "y", "z"].slice(0, dimension).flatMap((letter, i) => {
        const x = 20 * this.right[i], y = -20 * this.up[i], label = make("text", { x: 1.35 * x, y: 1.35 * y });
        label.textContent = letter;
        return [make("line", { x1: 0, y1: 0, x2: x, y2: y }), label];
      }));
    }
  }

  // ---- the cross-section ----------------------------------------------------------------------------------------------------
  const sectionPlane = () => {
    if (state.axis === "view") {
      const { right: u, up: v, back: n } = view, reach = n.reduce((sum, a, i) => sum + Math.abs(a) * size[i] / 2, 0);
      return { u, v, n, reach, centre: n.map((a) => a * reach * state.position) };
    }
    // Across and up for each normal; scenes that stand on y keep it upright.
    const i = Number(state.axis), e = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
    const [u, v] = [standing ? [e[2], e[1]] : [e[1], e[2]], [e[0], e[2]], [e[0], e[1]]][i], reach = size[i] / 2;
    return { u, v, n: e[i], reach, centre: e[i].map((a) => a * reach * state.position) };
  };
  class Section extends Screen {
    constructor(canvas) { super(canvas); this.reset(); }
    reset() { this.pan = [0, 0]; this.zoomed = 1; }
    turn(dx, dy) { this.move(dx * this.canvas.clientWidth / 3, dy * this.canvas.clientHeight / 3); }
    move(dx, dy) { const s = this.unitsPerPixel(); this.pan = [this.pan[0] - s * dx, this.pan[1] + s * dy]; }
    zoom(factor) { this.zoomed = Math.min(400, Math.max(0.05, this.zoomed / factor)); }
    halfHeight() {
      const { u, v } = sectionPlane(), reach = (axis) => axis.reduce((sum, a, i) => sum + Math.abs(a) * size[i] / 2, 0);
      const aspect = this.canvas.clientWidth / Math.max(1, this.canvas.clientHeight);
      return 1.12 * Math.max(reach(v), reach(u) / aspect) / this.zoomed || 1;
    }
    unitsPerPixel() { return 2 * this.halfHeight() / Math.max(1, this.canvas.clientHeight); }
    draw() {
      const { gl } = this, { w, h, scale } = this.fit(), look = theme(), { u, v, n, centre } = sectionPlane();
      gl.viewport(0, 0, w, h);
      gl.enable(gl.DEPTH_TEST);
      gl.clearColor(...look.back, 1);
      gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
      const half = this.halfHeight(), at = centre.map((c, i) => c + u[i] * this.pan[0] + v[i] * this.pan[1]);
      const pixels = Math.min(6, 2.4 * this.zoomed ** 0.25) * 2 ** (0.5 * state.size) * scale;
      this.drawPoints(looking(at, u, v, n), orthographic(half * w / h, half, 4 * radius), pixels, 1, [...n, dot(n, centre)], state.thickness * 2 * radius);
      scaleBar(this);
    }
  }

  const round3 = (x) => Number(x.toPrecision(3)).toString();
  const scaleBar = (screen) => {
    const bar = screen.canvas.parentElement.querySelector(".scale"), s = screen.unitsPerPixel(), wanted = 90 * s;
    const power = 10 ** Math.floor(Math.log10(wanted)), length = [5, 2, 1].map((m) => m * power).find((l) => l <= wanted) || power;
    bar.style.width = `${length / s}px`;
    bar.textContent = `${round3(length)} ${header.unit || ""}`.trim();
  };

  // ---- drawing, when something has changed ----------------------------------------------------------------------------------
  let view, section, due = false, moving = 0, before = 0;
  const redraw = () => { if (!due) { due = true; requestAnimationFrame(paint); } };
  const paint = (now) => {
    due = false;
    if (!view) return;
    if (moving && before) {  // a slow machine draws fewer points while the view moves
      const took = now - before;
      if (took > 45 && took < 2000) view.share = Math.max(0.05, view.share * Math.max(0.5, 40 / took));
      else if (took < 24) view.share = Math.min(1, view.share * 1.1);
    }
    before = moving ? now : 0;
    if (!moving) view.share = 1;
    view.draw();
    if (dimension === 3) section.draw();
  };
  const still = () => { clearTimeout(moving); moving = 0; redraw(); };
  const inMotion = () => { clearTimeout(moving); moving = setTimeout(still, 200); redraw(); };

  try {
    view = new View($("view"));
    section = new Section($("section"));
  } catch (error) {
    $("no-webgl").hidden = false;
    $("stage").querySelector(".views").hidden = true;
    document.querySelector("#stage .time").hidden = true;
    console.info("coframe report:", error.message);
    return;
  }

  // ---- pointers and keys ----------------------------------------------------------------------------------------------------
  for (const screen of [view, section]) {
    const { canvas } = screen, down = new Map();
    canvas.addEventListener("pointerdown", (e) => { canvas.setPointerCapture(e.pointerId); down.set(e.pointerId, [e.clientX, e.clientY]); });
    for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, (e) => down.delete(e.pointerId));
    canvas.addEventListener("contextmenu", (e) => e.preventDefault());
    canvas.addEventListener("pointermove", (e) => {
      const old = down.get(e.pointerId);
      if (!old) return;
      const [dx, dy] = [e.clientX - old[0], e.clientY - old[1]];
      if (down.size === 2) {
        const other = [...down].find(([id]) => id !== e.pointerId)[1];
        const distance = (p) => Math.hypot(p[0] - other[0], p[1] - other[1]) || 1;
        screen.zoom(distance(old) / distance([e.clientX, e.clientY]));
        screen.move(dx / 2, dy / 2);
      } else if (screen === section || dimension === 2 || e.shiftKey || e.buttons & 6) screen.move(dx, dy);
      else screen.turn(dx * 0.007, dy * 0.007);
      down.set(e.pointerId, [e.clientX, e.clientY]);
      inMotion();
    });
    canvas.addEventListener("wheel", (e) => {  // the page scrolls until the view has been clicked
      if (document.activeElement !== canvas && !e.ctrlKey) return;
      e.preventDefault();
      screen.zoom(Math.exp(Math.max(-60, Math.min(60, e.deltaY * (e.deltaMode ? 20 : 1))) * 0.003));
      inMotion();
    }, { passive: false });
    canvas.addEventListener("keydown", (e) => {
      const turn = { ArrowLeft: [-0.12, 0], ArrowRight: [0.12, 0], ArrowUp: [0, -0.12], ArrowDown: [0, 0.12] }[e.key];
      const factor = { "+": 0.85, "=": 0.85, "-": 1.18 }[e.key];
      if (e.ctrlKey || e.metaKey || e.altKey || !(turn || factor)) return;
      e.preventDefault();
      if (factor) screen.zoom(factor);
      else if (dimension === 2 || e.shiftKey) screen.move(200 * turn[0], 200 * turn[1]);
      else screen.turn(...turn);
      redraw();
    });
    canvas.addEventListener("dblclick", () => { screen.reset(); redraw(); });
  }
  $("reset").addEventListener("click", () => { view.reset(); section.reset(); redraw(); });

  // ---- controls -------------------------------------------------------------------------------------------------------------
  const setFrame = (frame) => {
    state.frame = Math.max(0, Math.min(last, frame));
    $("frame").value = state.frame;
    $("frame-label").textContent = header.frames[state.frame];
    $("frame").setAttribute("aria-valuetext", header.frames[state.frame]);
    $("before").setAttribute("aria-pressed", state.frame === 0);
    $("after").setAttribute("aria-pressed", state.frame === last);
    const number = /^iteration (\d+)$/.exec(header.frames[state.frame]);
    for (const chart of document.querySelectorAll("#convergence .chart")) {
      const { first: begin, last: end, left, right } = chart.dataset;
      const iteration = number ? Number(number[1]) : state.frame === last ? Number(end) : Number(begin);
      const x = Number(left) + (Number(right) - Number(left)) * (iteration - Number(begin)) / (Number(end) - Number(begin));
      for (const key of ["x1", "x2"]) chart.querySelector(".cursor").setAttribute(key, x);
    }
    redraw();
  };
  let timer = 0;
  const play = (on) => {
    clearInterval(timer);
    timer = 0;
    $("play").setAttribute("aria-pressed", on);
    $("play").setAttribute("aria-label", on ? "Pause" : "Play the iterations");
    if (!on) return;
    if (state.frame === last) setFrame(0);
    timer = setInterval(() => { if (state.frame === last) play(false); else setFrame(state.frame + 1); }, Math.min(250, Math.max(40, 6000 / frames)));
  };
  $("play").addEventListener("click", () => play(!timer));
  $("frame").addEventListener("input", (e) => { play(false); setFrame(Number(e.target.value)); });
  $("before").addEventListener("click", () => { play(false); setFrame(0); });
  $("after").addEventListener("click", () => { play(false); setFrame(last); });
  for (const key of ["points", "outliers", "model", "plane"]) $(key).addEventListener("change", (e) => { state[key] = e.target.checked; redraw(); });
  $("colour").addEventListener("change", (e) => { state.own = e.target.value === "own"; redraw(); });
  $("size").addEventListener("input", (e) => { state.size = Number(e.target.value); redraw(); });

  const showPlane = () => {
    const { reach, n } = sectionPlane(), place = dot(n, origin) + reach * state.position;
    $("position-label").textContent = round3(Math.abs(place) < 1e-9 * radius ? 0 : place);
    if (Math.abs(place) > 1000 * reach) $("position-label").textContent = place.toFixed(Math.max(0, 2 - Math.floor(Math.log10(reach))));
    $("thickness-label").textContent = round3(state.thickness * 2 * radius);
    redraw();
  };
  const axes = [...document.querySelectorAll("input[name=axis]")];
  for (const radio of axes) radio.addEventListener("change", () => { state.axis = radio.value; section.reset(); showPlane(); });
  $("position").addEventListener("input", (e) => { state.position = Number(e.target.value); showPlane(); });
  $("thickness").addEventListener("input", (e) => { state.thickness = 10 ** Number(e.target.value); showPlane(); });

  chips.forEach((chip, j) => {
    const box = chip.querySelector("input"), focus = (on) => { state.focus = on && box.checked ? j : -1; redraw(); };
    box.addEventListener("change", () => { state.shown[j] = box.checked; focus(false); });
    chip.addEventListener("mouseenter", () => focus(true));
    chip.addEventListener("mouseleave", () => focus(false));
    box.addEventListener("focus", () => focus(box.matches(":focus-visible")));
    box.addEventListener("blur", () => focus(false));
  });
  for (const [id, on] of [["all", true], ["none", false]]) $(id).addEventListener("click", () => {
    chips.forEach((chip, j) => { chip.querySelector("input").checked = state.shown[j] = on; });
    redraw();
  });

  // Where most points of several of these clouds are along an axis, from -1 to 1.
  const coordinates = floats("points"), bins = 41, middle = 20;
  const fullest = (which, n, reach) => {
    const all = new Float64Array(bins), most = new Float64Array(bins);
    for (const j of which) {
      const own = new Float64Array(bins), pose = poseOf(last, j), end = first[j] + Math.min(header.counts[j], 2000);
      const along = [0, 1, 2, 3].map((d) => dot(n, pose.slice(4 * d, 4 * d + 3)));
      for (let i = first[j]; i < end; i++) {
        const place = along[3] + [0, 1, 2].reduce((sum, d) => sum + along[d] * coordinates[3 * i + d], 0);
        const bin = Math.round(middle + middle * place / reach);
        if (bin >= 0 && bin < bins) own[bin]++;
      }
      own.forEach((count, i) => { all[i] += count; most[i] = Math.max(most[i], count); });
    }
    const shared = [...all].map((count, i) => count - most[i]);
    const best = [...all.keys()].sort((a, b) => shared[b] - shared[a] || all[b] - all[a] || Math.abs(a - middle) - Math.abs(b - middle))[0];
    return (best - middle) / middle;
  };

  // A link or a cell of a matrix shows its two clouds, cut where they share the most; once more, all of them.
  let kept = null;  // where the section was before, and where a pair has put it
  const pairs = [...document.querySelectorAll("[data-pair]")];
  const showPair = (pair) => {
    const same = pairs.some((each) => each.classList.contains("chosen") && each.dataset.pair === pair);
    const wanted = same ? [] : pair.split(" ").map(Number);
    const alike = wanted.length ? [pair, `${wanted[1]} ${wanted[0]}`] : [];
    for (const each of pairs) each.classList.toggle("chosen", alike.includes(each.dataset.pair));
    chips.forEach((chip, j) => { chip.querySelector("input").checked = state.shown[j] = same || wanted.includes(j); });
    if (dimension === 3) {
      const { n, reach } = sectionPlane(), before = kept && kept.axis === state.axis && kept.after === state.position ? kept.before : state.position;
      state.position = same ? before : fullest(wanted, n, reach);
      kept = same ? null : { axis: state.axis, before, after: state.position };
      $("position").value = state.position;
      showPlane();
    }
    redraw();
    if (!same) $("stage").scrollIntoView({ block: "nearest" });
  };
  for (const each of pairs) each.addEventListener("click", () => showPair(each.dataset.pair));

  for (const chart of document.querySelectorAll("#convergence .chart")) chart.addEventListener("click", (e) => {
    const { first: begin, last: end, left, right } = chart.dataset, box = chart.getBoundingClientRect();
    const x = (e.clientX - box.left) / box.width * chart.viewBox.baseVal.width;
    const wanted = Number(begin) + (Number(end) - Number(begin)) * (x - Number(left)) / (Number(right) - Number(left));
    let best = 0;
    header.frames.forEach((label, i) => {
      const distance = (k) => Math.abs(Number((/^iteration (\d+)$/.exec(header.frames[k]) || [0, Infinity])[1]) - wanted);
      if (distance(i) < distance(best)) best = i;
    });
    play(false);
    setFrame(best);
  });

  // ---- themes, paper, start -------------------------------------------------------------------------------------------------
  dark.addEventListener("change", redraw);
  const placed = document.querySelector(".placed");
  const onPaper = (on) => { printing = on; if (placed) placed.open = on; if (view) { view.draw(); if (dimension === 3) section.draw(); } };
  addEventListener("beforeprint", () => onPaper(true));
  addEventListener("afterprint", () => { onPaper(false); redraw(); });

  // The first cut: across the longest side, where the most points of several clouds are.
  const axis = size.indexOf(Math.max(...size));
  state.axis = String(axis);
  state.position = fullest(header.counts.keys(), [0, 1, 2].map((d) => Number(d === axis)), size[axis] / 2 || 1);
  $("position").value = state.position;
  state.thickness = Math.min(0.03, Math.max(0.002, 2.5 * spacing / (2 * radius)));
  $("thickness").value = Math.log10(state.thickness);
  axes.find((radio) => radio.value === state.axis).checked = true;
  setFrame(last);
  showPlane();
})();
