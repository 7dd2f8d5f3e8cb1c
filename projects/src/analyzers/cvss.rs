//! How bad a vulnerability is by its CVSS vector: the base score of version 3 (<https://www.first.org/cvss/v3.1/specification-document>),
//! where nothing else of a vector counts, or the score of version 4 (<https://www.first.org/cvss/v4.0/specification-document>).

use ::cvss::v4::Vector;

use crate::finding::Severity;

/// The severity of a vector such as `CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H`; `None` for those of other versions and for what
/// is no whole vector. Versions 3 and 4 have the same scale.
pub(super) fn severity(vector: &str) -> Option<Severity> {
    let score = if vector.starts_with("CVSS:4.0/") { score_of_4(vector) } else { base_score(vector) };
    let tenths = score? * 10.0;
    Some(match tenths {
        score if score < 0.5 => Severity::Info,
        score if score < 39.5 => Severity::Low,
        score if score < 69.5 => Severity::Medium,
        score if score < 89.5 => Severity::High,
        _ => Severity::Critical,
    })
}

/// With what is known of attacks (`E`), where the vector says it.
fn score_of_4(vector: &str) -> Option<f64> {
    Some(vector.parse::<Vector>().ok()?.score().value())
}

fn base_score(vector: &str) -> Option<f64> {
    let metrics = vector.strip_prefix("CVSS:3.1/").or_else(|| vector.strip_prefix("CVSS:3.0/"))?;
    let value = |name: &str| metrics.split('/').find_map(|one| one.strip_prefix(name)?.strip_prefix(':'));
    let is_changed = match value("S")? {
        "U" => false,
        "C" => true,
        _ => return None,
    };
    let (confidentiality, integrity, availability) = (impact(value("C")?)?, impact(value("I")?)?, impact(value("A")?)?);
    let lost = 1.0 - (1.0 - confidentiality) * (1.0 - integrity) * (1.0 - availability);
    let impact = if is_changed { 7.52 * (lost - 0.029) - 3.25 * (lost - 0.02).powi(15) } else { 6.42 * lost };
    let attack = match value("AV")? {
        "N" => 0.85,
        "A" => 0.62,
        "L" => 0.55,
        "P" => 0.2,
        _ => return None,
    };
    let complexity = match value("AC")? {
        "L" => 0.77,
        "H" => 0.44,
        _ => return None,
    };
    let privileges = match (value("PR")?, is_changed) {
        ("N", _) => 0.85,
        ("L", false) => 0.62,
        ("L", true) => 0.68,
        ("H", false) => 0.27,
        ("H", true) => 0.5,
        _ => return None,
    };
    let interaction = match value("UI")? {
        "N" => 0.85,
        "R" => 0.62,
        _ => return None,
    };
    if impact <= 0.0 {
        return Some(0.0);
    }
    let both = impact + 8.22 * attack * complexity * privileges * interaction;
    let scaled = if is_changed { 1.08 * both } else { both };
    Some(round_up(scaled.min(10.0)))
}

fn impact(value: &str) -> Option<f64> {
    Some(match value {
        "H" => 0.56,
        "L" => 0.22,
        "N" => 0.0,
        _ => return None,
    })
}

/// To the next tenth; a rest of calculating with floats is none.
fn round_up(score: f64) -> f64 {
    (score * 10.0 - 1e-4).ceil() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_vectors_whose_scores_are_known_when_they_are_judged_then_scores_and_severities_are_those() {
        for (vector, score, expected) in [
            ("AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", 9.8, Severity::Critical),
            ("AV:N/AC:L/PR:N/UI:N/S:C/C:H/I:H/A:H", 10.0, Severity::Critical),
            ("AV:L/AC:L/PR:L/UI:N/S:U/C:H/I:H/A:H", 7.8, Severity::High),
            ("AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:H", 7.5, Severity::High),
            ("AV:N/AC:L/PR:N/UI:R/S:C/C:L/I:L/A:N", 6.1, Severity::Medium),
            ("AV:N/AC:H/PR:N/UI:N/S:U/C:H/I:N/A:N", 5.9, Severity::Medium),
            ("AV:N/AC:H/PR:N/UI:N/S:U/C:N/I:L/A:N", 3.7, Severity::Low),
            ("AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:N", 0.0, Severity::Info),
        ] {
            for version in ["CVSS:3.0", "CVSS:3.1"] {
                let vector = format!("{version}/{vector}");
                let found = base_score(&vector).unwrap();
                assert!((found - score).abs() < 0.01, "{vector}: {found}");
                assert_eq!(severity(&vector), Some(expected), "{vector}");
            }
        }
        let cut = "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H";
        let odd = "CVSS:4.0/AV:X/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N";
        for other in
            ["", "HIGH", cut, odd, "CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N", "CVSS:3.1/AV:X/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"]
        {
            assert_eq!(severity(other), None, "{other}");
        }
    }

    #[test]
    fn given_vectors_of_version_4_whose_scores_are_known_when_they_are_judged_then_scores_and_severities_are_those() {
        let unset = "CR:X/IR:X/AR:X/MAV:X/MAC:X/MAT:X/MPR:X/MUI:X/MVC:X/MVI:X/MVA:X/MSC:X/MSI:X/MSA:X/S:X/AU:X/R:X/V:X/RE:X/U:X";
        let reported = format!("AV:N/AC:L/AT:N/PR:N/UI:N/VC:N/VI:H/VA:N/SC:N/SI:N/SA:N/E:P/{unset}");
        for (vector, score, expected) in [
            ("AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:H/SI:H/SA:H", 10.0, Severity::Critical),
            ("AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N", 9.3, Severity::Critical),
            ("AV:N/AC:L/AT:N/PR:N/UI:N/VC:N/VI:N/VA:H/SC:N/SI:N/SA:N", 8.7, Severity::High),
            (reported.as_str(), 7.7, Severity::High),
            ("AV:L/AC:L/AT:P/PR:L/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N", 7.3, Severity::High),
            ("AV:N/AC:L/AT:N/PR:N/UI:N/VC:L/VI:L/VA:L/SC:N/SI:N/SA:N", 6.9, Severity::Medium),
            ("AV:N/AC:L/AT:N/PR:N/UI:P/VC:N/VI:N/VA:N/SC:L/SI:L/SA:N", 5.3, Severity::Medium),
            ("AV:N/AC:L/AT:P/PR:N/UI:N/VC:L/VI:N/VA:N/SC:N/SI:N/SA:N/E:U", 1.7, Severity::Low),
            ("AV:N/AC:L/AT:N/PR:N/UI:N/VC:N/VI:N/VA:N/SC:N/SI:N/SA:N", 0.0, Severity::Info),
        ] {
            let vector = format!("CVSS:4.0/{vector}");
            let found = score_of_4(&vector).unwrap();
            assert!((found - score).abs() < 0.01, "{vector}: {found}");
            assert_eq!(severity(&vector), Some(expected), "{vector}");
        }
    }
}
