//! Values read from texts, written and compared.

use super::*;

fn text(ty: FieldType, s: &str) -> Option<Value> {
    ty.coerce(&Value::from(s))
}

#[test]
fn integers_of_64_bits_without_a_sign_are_whole() {
    let coerce = |v: Value| FieldType::ULong.coerce(&v);
    let most = Value::UInt(u64::MAX);
    assert_eq!(coerce(Value::from(" 18446744073709551615 ")), Some(most.clone()));
    assert_eq!(coerce(most.clone()), Some(most.clone()));
    assert_eq!(coerce(Value::from("9223372036854775807")), Some(Value::Int(i64::MAX)));
    for refused in ["18446744073709551616", "-1", "1.5", ""] {
        assert_eq!(coerce(Value::from(refused)), None, "{refused}");
    }
    assert_eq!(FieldType::Long.coerce(&most), None);
    assert_eq!((most.to_string(), u64::from_value(&most)), (u64::MAX.to_string(), Some(u64::MAX)));
    assert_eq!(most.order(&Value::Int(i64::MAX)), Some(Ordering::Greater));
    assert_eq!(most.order(&Value::Float(1.9e19)), Some(Ordering::Less));
    assert_eq!(Value::Float(1e19).order(&most), Some(Ordering::Less));
    assert!(Value::UInt(1 << 63).equals(&Value::Float(9_223_372_036_854_775_808.0)));
    assert!(!most.equals(&Value::Int(-1)));
}

#[test]
fn text_follows_the_dmlc_rules() {
    assert_eq!(text(FieldType::Bool, "TRUE"), Some(Value::Bool(true)));
    assert_eq!(text(FieldType::Bool, "yes"), None);
    assert_eq!(text(FieldType::Int, " -3 "), Some(Value::Int(-3)));
    assert_eq!(text(FieldType::Int, "3.5"), None);
    assert_eq!(text(FieldType::Int, "0x10"), None);
    assert_eq!(text(FieldType::Float, ".5f"), Some(Value::Float(0.5)));
    assert_eq!(text(FieldType::Float, "1e400"), None);
    assert_eq!(text(FieldType::Float, "inf"), Some(Value::Float(f64::INFINITY)));
    assert_eq!(text(FieldType::Float, "1x"), None);
    let shape = |v: &[i64]| Some(Value::from(v));
    for (s, want) in [
        ("(1,2)", shape(&[1, 2])),
        ("[1, 2]", shape(&[1, 2])),
        ("(1, 2,)", shape(&[1, 2])),
        ("( 1 , 2 )", shape(&[1, 2])),
        ("(3L,3L)", shape(&[3, 3])),
        ("3", shape(&[3])),
        ("()", shape(&[])),
        ("1,2", None),
        ("(3 3)", None),
        ("(3,3", None),
        ("", None),
        ("(1.5,)", None),
    ] {
        assert_eq!(text(FieldType::Shape, s), want, "{s}");
    }
    let opt = FieldType::Optional(Box::new(FieldType::Int));
    assert_eq!(text(opt.clone(), "None"), Some(Value::None));
    assert_eq!(text(opt, "none"), None);
}
