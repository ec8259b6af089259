// MuJoCo's JavaScript without code from strings, so that the page's policy needs no 'unsafe-eval'.
//
// Its bindings (embind) assemble two functions as text. This transform replaces both by closures that do the same. It fails if the
// source is not the one that it knows: a new version has to be looked at.
import type { Plugin } from 'vite'

const METHOD = `      let [args, invokerFnBody] = createJsInvoker(argTypes, isClassMethodFunc, returns, isAsync);
      var invokerFn = new Function(...args, invokerFnBody)(...closureArgs);
`
const METHOD_CLOSURE = `      var invokerFn = function (...given) {
        checkArgCount(given.length, minArgs, expectedArgCount, humanName, throwBindingError);
        var destructors = needsDestructorStack ? [] : null;
        var wired = argTypes.map((type, place) => place === 0 || (place === 1 && !isClassMethodFunc) ? undefined
          : type['toWireType'](destructors, place === 1 ? this : given[place - 2]));
        var rv = cppInvokerFunc(cppTargetFunc, ...wired.slice(isClassMethodFunc ? 1 : 2));
        if (needsDestructorStack) {
          runDestructors(destructors);
        } else {
          for (var place = isClassMethodFunc ? 1 : 2; place < argTypes.length; ++place) {
            if (argTypes[place].destructorFunction !== null) argTypes[place].destructorFunction(wired[place]);
          }
        }
        if (returns) return argTypes[0]['fromWireType'](rv);
      };
`
const CALLER = `      var invokerFunction = new Function(...params, functionBody)(...args);
`
const CALLER_CLOSURE = `      var invokerFunction = function (obj, func, destructorsRef, from) {
        var at = from;
        var given = types.map((type) => {
          var value = type.readValueFromPointer(at);
          at += type.argPackAdvance;
          return value;
        });
        var rv = kind === 1 ? new func(...given) : kind === 0 ? func.call(obj, ...given) : func.call(...given);
        if (!retType.isVoid) return emval_returnValue(retType, destructorsRef, rv);
      };
`

/** Replace both places. @throws Error if the source is another one. */
export function withoutEval(code: string): string {
  let result = code
  for (const [known, closure] of [[METHOD, METHOD_CLOSURE], [CALLER, CALLER_CLOSURE]] as const) {
    if (result.split(known).length !== 2) throw new Error('@mujoco/mujoco has changed: see without-eval.ts')
    result = result.replace(known, () => closure)
  }
  if (/\bnew Function\b|\beval\(/.test(result)) throw new Error('@mujoco/mujoco makes further functions from text: see without-eval.ts')
  return result
}

export function mujocoWithoutEval(): Plugin {
  return {
    name: 'mujoco-without-eval',
    enforce: 'pre',
    transform: (code, id) => (/@mujoco\/mujoco\/mujoco\.js(\?|$)/.test(id) ? { code: withoutEval(code), map: null } : null),
  }
}
