-- One step of one breaker: `kernel::resilience::breaker`, rule by rule. A test feeds both the same events and compares.
--
-- KEYS  1 state (hash)  2 calls (list)  3 seconds (list)  4 probes (sorted by the end of their lease)  5 history (list)
-- ARGV  1 clock  2 what  3 settings, as JSON  4 name of the breaker  5 the sources' channel  6 the channel of replicas
--       7… what the step needs besides
local STATE, CALLS, SECONDS, PROBES, HISTORY = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local HISTORY_MAX = 32
local FULL_RETRY_MS = 1000
-- One call in percent of it, and the most that is saved up of them.
local WHOLE_CALL = 100
local CREDIT_MAX = 2 * WHOLE_CALL - 1
-- How long what nobody touches is kept: an open breaker, a history. Changes by hand are kept until somebody changes them back.
local KEPT_MS = 7 * 86400000
-- The same for a closed one, after its window.
local CLOSED_KEPT_MS = 3600000
local GROWTH_MAX = 1000

local now = math.floor(now_us() / 1000)
local what = ARGV[2]

-- Most steps ask a breaker that lets everything through whether it does. That changes nothing and needs no more than this.
if what == 'acquire' then
  local mode, epoch, settings = unpack(redis.call('HMGET', STATE, 'mode', 'epoch', 'settings'))
  local passes = mode == 'closed' or mode == 'disabled' or mode == 'metrics_only'
  -- By the server's clock, what is over is not there; only a clock that is held has to ask.
  if passes and settings == ARGV[3] and (ARGV[1] == '' or not is_over(STATE, now)) then
    return { 'permitted', epoch, '', text(now) }
  end
end

-- And most calls succeed in a second in which others did. Where only failures are counted (ARGV[13], ARGV[14]: seconds of the
-- window, and after how many milliseconds a call is slow), one more success changes two sums.
if what == 'record' and ARGV[10] == 'succeeded' and ARGV[8] == '' and ARGV[12] == '' and ARGV[13] ~= '' then
  local mode, epoch, settings = unpack(redis.call('HMGET', STATE, 'mode', 'epoch', 'settings'))
  if mode == 'closed' and epoch == ARGV[7] and settings == ARGV[3] and (ARGV[1] == '' or not is_over(STATE, now)) then
    local second = math.floor(now / 1000)
    local oldest = redis.call('LINDEX', SECONDS, 0)
    local newest = oldest and redis.call('LINDEX', SECONDS, -1)
    local took = ARGV[11] ~= '' and tonumber(ARGV[11]) or math.max(0, now - tonumber(ARGV[9]))
    if newest and took <= tonumber(ARGV[14])
      and tonumber(string.match(oldest, '^%d+')) >= second - (tonumber(ARGV[13]) - 1)
      and tonumber(string.match(newest, '^%d+')) >= second
    then
      local at, calls, middle, duration = string.match(newest, '^(%d+) (%d+) (%d+ %d+ %d+) (%d+)$')
      local sum = table.concat({ at, text(calls + 1), middle, text(duration + took) }, ' ')
      redis.call('LSET', SECONDS, -1, sum)
      redis.call('HINCRBY', STATE, 'calls', 1)
      redis.call('HINCRBY', STATE, 'duration', text(took))
      return { 'done' }
    end
  end
end

-- ------------------------------------------------------------------------------------------------------------- state

local NUMBERS = {
  'epoch', 'since', 'until', 'openings', 'next_slot', 'refused', 'credit',
  'calls', 'failed', 'slow', 'slow_failed', 'duration',
  'p_calls', 'p_failed', 'p_slow', 'p_slow_failed', 'p_duration', 'p_failed_by', 'counted',
}
local WORDS = { 'mode', 'opened_by', 'settings' }
local state = {}
local changed = {}
-- Has anything happened after which the keys have to live longer?
local renewed = false

local function set(field, value)
  if state[field] ~= value then
    state[field] = value
    changed[field] = true
  end
end

local function add(field, value)
  set(field, math.max(0, (state[field] or 0) + value))
end

local known = redis.call('HMGET', STATE, 'mode', 'opened_by', 'settings', unpack(NUMBERS))
for at, field in ipairs(WORDS) do
  state[field] = known[at] or nil
end
for at, field in ipairs(NUMBERS) do
  local value = known[at + #WORDS]
  state[field] = value and tonumber(value) or nil
end

if what == 'inspect' then
  if not state.mode or is_over(STATE, now) then
    return { 'none' }
  end
else
  if state.mode and is_over(STATE, now) then
    redis.call('DEL', STATE)
    state = {}
  end
end
local settings = cjson.decode(what == 'inspect' and state.settings or ARGV[3])

local function given(value)
  if value == cjson.null then
    return nil
  end
  return value
end

local function open_wait(opening)
  local wait = settings.open_wait
  if wait.by == 'fixed' then
    return wait.ms
  end
  local ms = wait.first_ms
  for _ = 2, math.min(opening, GROWTH_MAX) do
    if wait.factor <= 1 or ms >= wait.max_ms then
      break
    end
    -- The reference counts in whole nanoseconds.
    ms = math.floor(ms * wait.factor * 1000000 + 0.5) / 1000000
  end
  return math.floor(math.min(ms, wait.max_ms))
end

if not state.mode then
  redis.call('DEL', CALLS, SECONDS, PROBES)
  renewed = true
  -- Not from one: what was permitted by a breaker that is forgotten must not count for the one that takes its name.
  for field, value in pairs({ mode = 'closed', epoch = now, since = now, openings = 0, next_slot = 1, refused = 0 }) do
    set(field, value)
  end
end
if what ~= 'inspect' then
  set('settings', ARGV[3])
end

-- ------------------------------------------------------------------------------------------------------------ window

local function clear_window()
  redis.call('DEL', CALLS, SECONDS)
  for _, field in ipairs({ 'calls', 'failed', 'slow', 'slow_failed', 'duration' }) do
    set(field, 0)
  end
end

local function sum_of(entry)
  local second, calls, failed, slow, slow_failed, duration = string.match(entry, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  return {
    second = tonumber(second), calls = tonumber(calls), failed = tonumber(failed),
    slow = tonumber(slow), slow_failed = tonumber(slow_failed), duration = tonumber(duration),
  }
end

local function entry_of(second, sum)
  return table.concat({
    text(second), text(sum.calls), text(sum.failed), text(sum.slow), text(sum.slow_failed), text(sum.duration),
  }, ' ')
end

local function count_in(prefix, sum, sign)
  for _, field in ipairs({ 'calls', 'failed', 'slow', 'slow_failed', 'duration' }) do
    add(prefix .. field, sign * sum[field])
  end
end

-- Drops the seconds that have passed out of a window by time.
local function forget()
  if settings.window.by ~= 'time' then
    return
  end
  local first = math.max(0, math.floor(now / 1000) - (settings.window.seconds - 1))
  while true do
    local oldest = redis.call('LINDEX', SECONDS, 0)
    if not oldest then
      return
    end
    local sum = sum_of(oldest)
    if sum.second >= first then
      return
    end
    count_in('', sum, -1)
    redis.call('LPOP', SECONDS)
  end
end

local function count_call(call)
  if settings.window.by == 'count' then
    while redis.call('LLEN', CALLS) >= settings.window.calls do
      count_in('', sum_of(redis.call('LPOP', CALLS)), -1)
    end
    redis.call('RPUSH', CALLS, entry_of(0, call))
    add('counted', 1)
    renewed = true
  else
    forget()
    local second = math.floor(now / 1000)
    local newest = redis.call('LINDEX', SECONDS, -1)
    local sum = newest and sum_of(newest)
    if sum and sum.second >= second then
      for field, value in pairs(call) do
        sum[field] = sum[field] + value
      end
      redis.call('LSET', SECONDS, -1, entry_of(sum.second, sum))
    else
      redis.call('RPUSH', SECONDS, entry_of(second, call))
      renewed = true
    end
  end
  count_in('', call, 1)
end

-- ------------------------------------------------------------------------------------------------------- transitions

local function enter(to, reason)
  local from = state.mode
  renewed = true
  set('mode', to)
  set('epoch', state.epoch + 1)
  set('since', now)
  set('until', nil)
  redis.call('DEL', PROBES)
  if to == 'open' or to == 'forced_open' then
    set('opened_by', reason)
  else
    clear_window()
    if to == 'half_open' then
      for _, field in ipairs({ 'p_calls', 'p_failed', 'p_slow', 'p_slow_failed', 'p_duration' }) do
        set(field, 0)
      end
      set('credit', nil)
      set('p_failed_by', nil)
    else
      set('openings', 0)
      set('opened_by', nil)
    end
  end
  local change = '{"at_ms":' .. text(now) .. ',"from":"' .. from .. '","to":"' .. to .. '","reason":' .. reason
    .. ',"epoch":' .. text(state.epoch) .. '}'
  redis.call('LPUSH', HISTORY, change)
  redis.call('LTRIM', HISTORY, 0, HISTORY_MAX - 1)
  redis.call('PUBLISH', ARGV[5], ARGV[4] .. ':' .. from .. '->' .. to)
  redis.call('PUBLISH', ARGV[6], ARGV[4] .. ' ' .. change)
end

local function open(wait_ms, reason)
  enter('open', reason)
  set('openings', (state.openings or 0) + 1)
  set('until', now + wait_ms)
end

-- What time has brought.
local function tick()
  if state.mode == 'half_open' then
    redis.call('ZREMRANGEBYSCORE', PROBES, '-inf', text(now))
    local most = given(settings.half_open_max_ms)
    if most and now >= state.since + most then
      open(open_wait((state.openings or 0) + 1), '"half_open_too_long"')
    end
  end
end

local function redeem(epoch, slot)
  if epoch ~= text(state.epoch) then
    return false
  end
  return slot == '' or redis.call('ZREM', PROBES, slot) == 1
end

-- ---------------------------------------------------------------------------------------------------------- judgement

local function percent(part, whole)
  return whole == 0 and 0 or part * 100 / whole
end

local function exceeded(kind, number)
  return '{"exceeded":{"' .. kind .. '":' .. number .. '}}'
end

local function share_over(prefix, of, needed)
  local most = given(settings[of == 'failed' and 'failure_percent' or 'slow_percent'])
  local calls = state[prefix .. 'calls'] or 0
  local share = percent(state[prefix .. of] or 0, calls)
  if most and calls >= needed and share >= most then
    return exceeded(of == 'failed' and 'failure_percent' or 'slow_percent', string.format('%.17g', share))
  end
end

-- What one guest may bring in a span of the window's length: a window reaches into two of them.
local function is_under_bounds(bad)
  local needed = settings.minimum_calls
  if settings.window.by == 'count' then
    needed = math.min(needed, settings.window.calls)
  end
  local threshold = given(settings.failure_threshold)
  if threshold and 2 * bad >= threshold then
    return false
  end
  for _, most in ipairs({ given(settings.failure_percent) or false, given(settings.slow_percent) or false }) do
    if most and 2 * bad * 100 >= most * needed then
      return false
    end
  end
  return true
end

-- Does it count that this guest's call failed, or was slow? Its share is a field of the state: since when, since which call,
-- how many.
local function weighs(guest)
  if state.mode == 'half_open' then
    if not state.p_failed_by then
      set('p_failed_by', guest)
    end
    return state.p_failed_by ~= guest
  elseif state.mode ~= 'closed' and state.mode ~= 'metrics_only' then
    return true
  end
  local field = 'guest_' .. text(guest)
  local counted = state.counted or 0
  local since_ms, since_call, bad = string.match(redis.call('HGET', STATE, field) or '', '^(%d+) (%d+) (%d+)$')
  since_ms, since_call, bad = tonumber(since_ms or 0), tonumber(since_call or 0), tonumber(bad or 0)
  local span_over
  if settings.window.by == 'count' then
    span_over = counted - since_call >= settings.window.calls
  else
    span_over = now - since_ms >= settings.window.seconds * 1000
  end
  if span_over or bad == 0 then
    since_ms, since_call, bad = now, counted, 0
  end
  if not is_under_bounds(bad + 1) then
    return false
  end
  redis.call('HSET', STATE, field, table.concat({ text(since_ms), text(since_call), text(bad + 1) }, ' '))
  return true
end

local function judge_call(call)
  count_call(call)
  local needed = settings.minimum_calls
  if settings.window.by == 'count' then
    needed = math.min(needed, settings.window.calls)
  end
  local threshold = given(settings.failure_threshold)
  local failures
  if threshold and call.failed == 1 and state.failed >= threshold then
    failures = exceeded('failures', text(state.failed))
  else
    failures = share_over('', 'failed', needed)
  end
  local worst = failures or share_over('', 'slow', needed)
  if worst and state.mode == 'closed' then
    return 'open', worst
  end
end

local function judge_probe(call)
  count_in('p_', call, 1)
  local rule = settings.half_open_rule
  if rule.by == 'one_failure' then
    if call.failed == 1 or (call.slow == 1 and given(settings.slow_percent)) then
      return 'open', '"probe_failed"'
    end
    if state.p_calls - state.p_failed >= rule.success_threshold then
      return 'close'
    end
    return nil
  end
  if state.p_calls < settings.half_open_max_calls then
    return nil
  end
  local worst = share_over('p_', 'failed', 1) or share_over('p_', 'slow', 1)
  if worst then
    return 'open', worst
  end
  return 'close'
end

-- -------------------------------------------------------------------------------------------------------------- steps

local function refuse(retry_after)
  add('refused', 1)
  return { 'refused', state.mode, retry_after and text(retry_after) or '' }
end

-- The share in percent that a half-open breaker lets through.
local function share()
  local canary = given(settings.canary)
  if canary then
    local successes = (state.p_calls or 0) - (state.p_failed or 0)
    return math.min(100, canary.first_percent + canary.step_percent * successes)
  end
end

local function acquire(lease_ms)
  if state.mode == 'open' and (not state['until'] or now >= state['until']) then
    enter('half_open', '"wait_over"')
  end
  if state.mode == 'open' then
    return refuse(state['until'] and math.max(1, state['until'] - now))
  elseif state.mode == 'forced_open' then
    return refuse(nil)
  elseif state.mode ~= 'half_open' then
    return { 'permitted', text(state.epoch), '', text(now) }
  end
  local used = redis.call('ZCARD', PROBES)
  if settings.half_open_rule.by ~= 'one_failure' then
    used = used + (state.p_calls or 0)
  end
  local part = share()
  if part then
    set('credit', math.min(CREDIT_MAX, (state.credit or WHOLE_CALL - part) + part))
  end
  if used >= settings.half_open_max_calls or (part and state.credit < WHOLE_CALL) then
    return refuse(FULL_RETRY_MS)
  end
  if state.credit then
    set('credit', math.max(0, state.credit - WHOLE_CALL))
  end
  local slot = text(state.next_slot)
  set('next_slot', state.next_slot + 1)
  redis.call('ZADD', PROBES, text(now + math.max(1, lease_ms)), slot)
  renewed = true
  return { 'permitted', text(state.epoch), slot, text(now) }
end

local function record(epoch, slot, at, verdict, duration, open_for, guest)
  if not redeem(epoch, slot) or verdict == 'ignored' or state.mode == 'disabled' then
    return
  end
  local took = duration ~= '' and tonumber(duration) or math.max(0, now - tonumber(at))
  local failed = verdict == 'failed' and 1 or 0
  local slow = took > settings.slow_after_ms and 1 or 0
  local call = { calls = 1, failed = failed, slow = slow, slow_failed = failed * slow, duration = took }
  if guest ~= '' and (failed == 1 or (slow == 1 and given(settings.slow_percent))) and not weighs(tonumber(guest)) then
    return
  end
  local verdict_of, reason
  if state.mode == 'closed' or state.mode == 'metrics_only' then
    verdict_of, reason = judge_call(call)
  elseif state.mode == 'half_open' then
    verdict_of, reason = judge_probe(call)
  end
  if open_for ~= '' and state.mode ~= 'metrics_only' and guest == '' then
    open(tonumber(open_for), '"asked"')
  elseif verdict_of == 'open' then
    open(open_wait((state.openings or 0) + 1), reason)
  elseif verdict_of == 'close' then
    enter('closed', '"recovered"')
  end
end

local TARGETS = {
  open = 'open', open_until = 'open', force_open = 'forced_open', half_open = 'half_open', close = 'closed',
  reset = 'closed', disable = 'disabled', metrics_only = 'metrics_only',
}

-- Answers the two states if there is no such way.
local function shift(by_hand, number)
  local from, to = state.mode, TARGETS[by_hand]
  if from == 'closed' and to == 'half_open' then
    return { 'illegal', from, to }
  end
  local till
  if by_hand == 'open_until' then
    till = tonumber(number)
  elseif by_hand == 'open' then
    till = now + (number ~= '' and tonumber(number) or open_wait(1))
  end
  if by_hand == 'reset' then
    clear_window()
    set('refused', 0)
  end
  if from ~= to then
    if to == 'open' then
      open(math.max(0, till - now), '"manual"')
    else
      enter(to, '"manual"')
    end
  elseif till then
    set('until', till)
    renewed = true
  end
end

local function report()
  local prefix = ''
  if state.mode == 'half_open' then
    prefix = 'p_'
  else
    forget()
  end
  local total = function(field)
    return text(state[prefix .. field] or 0)
  end
  local canary = state.mode == 'half_open' and share()
  local answer = {
    'report', state.mode, text(state.since), state['until'] and text(state['until']) or '',
    total('calls'), total('failed'), total('slow'), total('slow_failed'), total('duration'),
    text(state.refused), text(redis.call('ZCARD', PROBES)), canary and text(canary) or '', state.opened_by or '',
    state.settings,
  }
  for _, change in ipairs(redis.call('LRANGE', HISTORY, 0, HISTORY_MAX - 1)) do
    answer[#answer + 1] = change
  end
  return answer
end

local function keep()
  if not next(changed) then
    return
  end
  local fields = {}
  for field in pairs(changed) do
    local value = state[field]
    if value == nil then
      redis.call('HDEL', STATE, field)
    else
      fields[#fields + 1] = field
      fields[#fields + 1] = type(value) == 'number' and text(value) or value
    end
  end
  if #fields > 0 then
    redis.call('HSET', STATE, unpack(fields))
  end
  if not renewed then
    return
  end
  local mode, keys = state.mode, { STATE, CALLS, SECONDS, PROBES, HISTORY }
  if mode == 'forced_open' or mode == 'disabled' or mode == 'metrics_only' then
    for _, key in ipairs(keys) do
      redis.call('PERSIST', key)
    end
    return
  end
  local expires = now + KEPT_MS
  if mode == 'open' and state['until'] then
    expires = math.max(now, state['until']) + KEPT_MS
  elseif mode == 'closed' and settings.window.by == 'time' then
    expires = now + settings.window.seconds * 1000 + CLOSED_KEPT_MS
  end
  for _, key in ipairs(keys) do
    redis.call('PEXPIREAT', key, text(key == HISTORY and now + KEPT_MS or expires))
  end
end

tick()
local answer
if what == 'acquire' then
  answer = acquire(tonumber(ARGV[7]))
elseif what == 'record' then
  record(ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11], ARGV[12], ARGV[15])
elseif what == 'release' then
  redeem(ARGV[7], ARGV[8])
elseif what == 'shift' then
  answer = shift(ARGV[7], ARGV[8]) or report()
elseif what == 'inspect' then
  answer = report()
end
keep()
return answer or { 'done' }
